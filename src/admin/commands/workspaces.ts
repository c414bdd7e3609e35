import { type Command, InvalidArgumentError } from 'commander';
import { v7 } from 'uuid';
import type { Prisma } from '../../generated/prisma/client.ts';
import { settings } from '../../platform/config.ts';
import { readSpread } from '../../store/installation.ts';
import { emptiestShard } from '../../store/workspace-shards.ts';
import { parseCount, parseName } from '../arguments.ts';
import { change } from '../audit.ts';
import { addNoun, addVerb, refuseTaken } from '../command.ts';
import { findCompany, findWorkspace, withInstallation } from '../lookup.ts';
import { addList, printRow, type Row } from '../output.ts';

/** Seconds that a move waits for a moment at which little of the workspace waits. */
const WAIT = 60;

export function addWorkspaces(program: Command): void {
  const noun = addNoun(program, 'workspaces', {
    sentence:
      'Make, list and move workspaces: each has users, keys and limits of its own, and a shard of the lanes.',
    example: 'workspaces list',
  });
  addVerb(noun, 'create', {
    sentence: 'Make a workspace, in the shard that has fewest.',
    example: 'workspaces create --name shop',
  })
    .requiredOption('--name <name>', 'name, unlike that of any other workspace', parseName)
    .option('--company <company>', 'name or id of the company that owns it', 'default')
    .action(create);
  addList(noun, {
    one: 'workspace',
    many: 'workspaces',
    sentence: 'List the workspaces, the oldest first.',
    example: 'workspaces list --limit 20',
    find: (prisma, page) => prisma.workspace.findMany({ ...page, include: ofOwner }),
    rowOf,
  });
  addVerb(noun, 'move', {
    sentence:
      'Move a workspace to another shard, while it sends: its requests are held for less than a second, and nothing is lost or out of order.',
    example: 'workspaces move shop --shard 3',
  })
    .argument('<workspace>', 'name or id of the workspace')
    .requiredOption('--shard <number>', 'shard that it is to have, counted from 0', parseShard)
    .option('--wait <seconds>', 'longest wait for a moment at which little of it waits', parseCount, WAIT)
    .action(move);
}

function parseShard(text: string): number {
  const shard = Number(text);
  const most = settings.SHARDS.maximum! - 1;
  if (text.trim() === '' || !Number.isInteger(shard) || shard < 0 || shard > most)
    throw new InvalidArgumentError(`It is a whole number from 0 to ${most}.`);
  return shard;
}

interface CreateOptions {
  name: string;
  company: string;
  json?: boolean;
}

async function create({ name, company, json }: CreateOptions): Promise<void> {
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
    }).catch(refuseTaken(`a workspace is named '${name}' already; names of workspaces are unique`));
    printRow(json, rowOf(workspace));
  });
}

const ofOwner = { company: { select: { name: true } } } satisfies Prisma.WorkspaceInclude;

function rowOf(workspace: Prisma.WorkspaceGetPayload<{ include: typeof ofOwner }>): Row {
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
  // Loaded here alone: the others need no queue.
  const { moveWorkspace } = await import('../move-workspace.ts');
  await withInstallation(async (installation) => {
    const { id, name } = await findWorkspace(installation.database, named);
    const { from, held } = await moveWorkspace(installation, id, {
      ...{ to: shard, wait },
      say: (hindrance) => void process.stderr.write(`waiting: ${hindrance}\n`),
    });
    printRow(json, { workspace_id: id, name, from, shard, held_ms: held });
  });
}
