import type { Prisma } from '../generated/prisma/client.ts';
import { settings } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import { readSpread } from '../store/installation.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { emptiestShard } from '../store/queue-shards.ts';
import { change } from './change.ts';
import { name, optional, readCount, text, withDefault } from './fields.ts';
import { eraseArchived, recountSeriesNow, restoreArchived, runRetentionNow } from './maintenance.ts';
import { InvalidValue, Refusal, refuseTaken } from './refusal.ts';
import {
  type Action,
  action,
  type Context,
  type Creation,
  creation,
  describeResource,
  iso,
} from './resource.ts';
import { markNumbers, setRetention } from './workspace-actions.ts';
import { beginMove, isMoving, stateOfMove } from './workspace-moves.ts';

const include = { company: { select: { name: true } } } satisfies Prisma.WorkspaceInclude;

export type ShownWorkspace = Prisma.WorkspaceGetPayload<{ include: typeof include }>;

/** Default maximum seconds of a move to wait until few jobs of the workspace are waiting. */
const WAIT = 60;

function readShard(given: string): number {
  const shard = Number(given);
  const maximum = settings.SHARDS.maximum! - 1;
  if (given.trim() === '' || !Number.isInteger(shard) || shard < 0 || shard > maximum)
    throw new InvalidValue(`Must be a whole number from 0 to ${maximum}.`);
  return shard;
}

async function findById({ database: { prisma } }: Context, id: string): Promise<ShownWorkspace | undefined> {
  return (await prisma.workspace.findUnique({ where: { id }, include })) ?? undefined;
}

/** Returns the form of an action on a workspace. The command belongs to another noun. */
const ofWorkspace = (verb: string, { run, ...made }: Creation<never>): Action<ShownWorkspace> => ({
  ...{ ...made, verb, isConsoleOnly: true },
  run: async (context, { one, values }) => {
    await run(context, { owner: one, values });
    return { one };
  },
});

/** Returns the form of an action on the installation. The command belongs to another noun. */
const ofInstallation = (
  verb: string,
  { run, ...made }: Creation<{ id: string }>,
): Creation<ShownWorkspace> => ({
  ...{ ...made, verb, isConsoleOnly: true },
  run: async (context, given) => {
    await run(context, given);
    return {};
  },
});

export const workspaces = describeResource<ShownWorkspace>({
  noun: 'workspaces',
  one: 'workspace',
  many: 'workspaces',
  title: 'Workspaces',
  sentence:
    'Create, list and move workspaces. A workspace has its own users, keys and limits, and belongs to one shard.',
  example: 'workspaces list',
  lead: 'A workspace has its own users, keys and limits. Its page shows its usage.',
  scope: 'workspace',
  isOwner: true,
  permit: 'usage',
  columns: [
    { name: 'workspace_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'company', title: 'Company', value: ({ company }) => company.name },
    { name: 'name', value: (workspace) => workspace.name },
    { name: 'shard', title: 'Shard', kind: 'number', value: ({ shard }) => shard },
    {
      name: 'move',
      title: 'Move',
      value: () => null,
      shown: stateOfMove,
      not: ['json', 'table', 'list'],
    },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
  ],
  filters: {
    name: optional(
      text(
        { label: 'Complete name or id', help: 'only the workspace with this name or id', value: 'workspace' },
        (given) => given,
      ),
    ),
  },
  listing: { sentence: 'List the workspaces, oldest first.', example: 'workspaces list --limit 20' },
  list({ database }, { owners, companyId, after, before, newestFirst, limit, filters = {} }) {
    const { name: wanted } = filters as { name?: string };
    return database.prisma.workspace.findMany({
      where: {
        AND: [
          owners ? { id: { in: [...owners] } } : {},
          companyId !== undefined ? { companyId } : {},
          after !== undefined ? { id: { gt: after } } : {},
          before !== undefined ? { id: { lt: before } } : {},
          wanted !== undefined ? byNameOrId(wanted) : {},
        ],
      },
      orderBy: { id: newestFirst ? 'desc' : 'asc' },
      take: limit,
      include,
    });
  },
  find: findById,
  nameOf: (workspace) => workspace.name,
  ownerOf: ({ id }) => id,
  refreshSeconds: (workspace) => (isMoving(workspace) ? 2 : undefined),
  naming: {
    argument: '<workspace>',
    help: 'name or id of the workspace',
    by: () => 'the name or the id',
    async find({ database: { prisma } }, { text: nameOrId = '' }) {
      const matches = await prisma.workspace.findMany({ where: byNameOrId(nameOrId), include, take: 2 });
      return matches.find((one) => one.name === nameOrId) ?? matches[0];
    },
  },
  empty: 'Users, keys and limits belong to a workspace.',
  creation: creation({
    verb: 'create',
    button: 'Create workspace',
    sentence: 'Create a workspace in the shard with the fewest workspaces.',
    example: 'workspaces create --name shop',
    scope: 'installation',
    permit: 'operator',
    done: 'Created. Create an API key for its clients.',
    fields: {
      name: name('name, unique among workspaces'),
      company: withDefault(
        text(
          { label: 'Company', help: 'name or id of the company that owns it', value: 'company' },
          (given) => given,
        ),
        'default',
      ),
    },
    async run(context, { values: { name: called, company: named } }) {
      const { database } = context;
      const company = await database.prisma.company.findFirst({ where: byNameOrId(named) });
      if (!company)
        throw new Refusal(
          `no company has the name or the id '${named}'; see penstock companies list`,
          'company',
        );
      const { shards = 1 } = (await readSpread(database.pool)) ?? {};
      const shard = await emptiestShard(database, shards);
      const one = await change(context, async (tx) => {
        const data = { id: newId(), companyId: company.id, name: called, shard };
        const result = await tx.workspace.create({ data, include });
        const { id, companyId } = result;
        const entry = { subject: { kind: 'workspace', id }, workspaceId: id, companyId };
        return { result, entries: [{ action: 'workspaces.create', ...entry, detail: { name: called } }] };
      }).catch(
        refuseTaken(`a workspace with the name '${called}' already exists; choose another name`, 'name'),
      );
      return { one };
    },
  }),
  // The commands belong to the nouns retention and series.
  ownerActions: [
    ofInstallation('run-retention', runRetentionNow),
    ofInstallation('recount-series', recountSeriesNow),
  ],
  actions: [
    action({
      verb: 'move',
      button: 'Move to another shard',
      submit: 'Move workspace',
      sentence:
        'Move a workspace to another shard while clients send requests. Requests wait for less than a second; nothing is lost or reordered.',
      example: 'workspaces move shop --shard 3',
      permit: 'operator',
      lead: 'Clients can send requests meanwhile. Requests wait for less than a second, and nothing is lost or reordered.',
      fields: {
        shard: text({ label: 'Shard', help: 'target shard, counted from 0', value: 'number' }, readShard),
        wait: withDefault(
          text(
            {
              label: 'Seconds to wait',
              help: 'maximum time to wait until few of its jobs are waiting',
              value: 'seconds',
            },
            readCount,
          ),
          WAIT,
        ),
      },
      done: 'The move has started. This page shows its state.',
      async run(context, { one, values: { shard, wait } }) {
        const { id, name: called } = one;
        const isConsole = context.actor.via === 'console';
        const { ended } = await beginMove(context, id, {
          ...{ to: shard, wait },
          ...(!isConsole && {
            onWait: (hindrance: string) => void process.stderr.write(`waiting: ${hindrance}\n`),
          }),
        });
        if (isConsole) {
          // A move takes longer than a request of the console may take. The page shows how it ended.
          ended.catch(() => {});
          return { one };
        }
        const { from, held } = await ended;
        return { row: { workspace_id: id, name: called, from, shard, held_ms: held } };
      },
    }),
    ofWorkspace('set-retention', setRetention),
    ofWorkspace('mark-invalid', markNumbers),
    ofWorkspace('restore', restoreArchived),
    ofWorkspace('erase', eraseArchived),
  ],
});
