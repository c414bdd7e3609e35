import { type Command, InvalidArgumentError } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { settings } from '../../platform/config.ts';
import { keyset } from '../../resources/resource.ts';
import { readSpread } from '../../store/installation.ts';
import { emptiestShard } from '../../store/queue-shards.ts';
import { addNoun, addVerb, parseCount, parseName, refuseTaken } from '../command.ts';
import { change, findCompany, findWorkspace, withInstallation } from '../installation.ts';
import { addList, printRow, type Row } from '../output.ts';

/** Default maximum seconds of a move to wait until few jobs of the workspace are waiting. */
const WAIT = 60;

export function addWorkspaces(program: Command): void {
  const noun = addNoun(program, 'workspaces', {
    sentence:
      'Create, list and move workspaces. A workspace has its own users, keys and limits, and belongs to one shard.',
    example: 'workspaces list',
  });
  addVerb(noun, 'create', {
    sentence: 'Create a workspace in the shard with the fewest workspaces.',
    example: 'workspaces create --name shop',
  })
    .requiredOption('--name <name>', 'name, unique among workspaces', parseName)
    .option('--company <company>', 'name or id of the company that owns it', 'default')
    .action(createWorkspace);
  addList(noun, {
    one: 'workspace',
    many: 'workspaces',
    sentence: 'List the workspaces, oldest first.',
    example: 'workspaces list --limit 20',
    list: ({ database }, page) =>
      database.prisma.workspace.findMany({ ...keyset('companyId', page), include: ofOwner }),
    rowOf: workspaceRowOf,
  });
  addVerb(noun, 'move', {
    sentence:
      'Move a workspace to another shard while clients send requests. Requests wait for less than a second; nothing is lost or reordered.',
    example: 'workspaces move shop --shard 3',
  })
    .argument('<workspace>', 'name or id of the workspace')
    .requiredOption('--shard <number>', 'target shard, counted from 0', parseShard)
    .option('--wait <seconds>', 'maximum time to wait until few of its jobs are waiting', parseCount, WAIT)
    .action(move);
}

function parseShard(text: string): number {
  const shard = Number(text);
  const maximum = settings.SHARDS.maximum! - 1;
  if (text.trim() === '' || !Number.isInteger(shard) || shard < 0 || shard > maximum)
    throw new InvalidArgumentError(`Must be a whole number from 0 to ${maximum}.`);
  return shard;
}

interface CreateOptions {
  name: string;
  company: string;
  json?: boolean;
}

async function createWorkspace({ name, company, json }: CreateOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: companyId } = await findCompany(database, company);
    const { shards = 1 } = (await readSpread(database.pool)) ?? {};
    const shard = await emptiestShard(database.pool, shards);
    const workspace = await change(database, async (tx) => {
      const data = { id: v7(), companyId, name, shard };
      const made = await tx.workspace.create({ data, include: ofOwner });
      const subject = { kind: 'workspace', id: made.id };
      const entry = { subject, workspaceId: made.id, companyId, detail: { name } };
      return { result: made, entries: [{ action: 'workspaces.create', ...entry }] };
    }).catch(refuseTaken(`a workspace with the name '${name}' already exists; choose another name`));
    printRow(json, workspaceRowOf(workspace));
  });
}

const ofOwner = { company: { select: { name: true } } } satisfies Prisma.WorkspaceInclude;

function workspaceRowOf(workspace: Prisma.WorkspaceGetPayload<{ include: typeof ofOwner }>): Row {
  return {
    workspace_id: workspace.id,
    company: workspace.company.name,
    name: workspace.name,
    shard: workspace.shard,
    created_at: workspace.createdAt.toISOString(),
  };
}

async function move(
  named: string,
  { shard, wait, json }: { shard: number; wait: number; json?: boolean },
): Promise<void> {
  // Loaded only by the verb that uses the queue, for a fast start of the others.
  const { moveWorkspace } = await import('../move-workspace.ts');
  await withInstallation(async (installation) => {
    const { id, name } = await findWorkspace(installation.database, named);
    const { from, held } = await moveWorkspace(installation, id, {
      ...{ to: shard, wait },
      onWait: (hindrance) => void process.stderr.write(`waiting: ${hindrance}\n`),
    });
    printRow(json, { workspace_id: id, name, from, shard, held_ms: held });
  });
}
