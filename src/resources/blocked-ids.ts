import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { duration } from '../platform/format.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../profile/identifier.ts';
import { isUuid } from '../profile/values.ts';
import type { AuditEntry } from '../store/audit.ts';
import { MAX_BLOCKED } from '../store/blocked-external-ids.ts';
import { change } from './change.ts';
import { MAX_NAME, optional, readExternalId, text } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import { action, type Context, creation, describeResource, iso, type Resource, rowOf } from './resource.ts';

const include = { workspace: { select: { name: true } } } satisfies Prisma.BlockedExternalIdInclude;

type Stored = Prisma.BlockedExternalIdGetPayload<{ include: typeof include }>;

export type BlockedId = Stored & { id: string };

interface Key {
  workspaceId: string;
  externalId: string;
}

/** Returns the id of an entry: the workspace, and the external id in a form that fits a path. */
const idOf = ({ workspaceId, externalId }: Key) =>
  `${workspaceId}.${Buffer.from(externalId).toString('base64url')}`;

function keyOf(id: string): Key | undefined {
  const [workspaceId = '', encoded = ''] = id.split('.');
  const externalId = Buffer.from(encoded, 'base64url').toString();
  return isUuid(workspaceId) && externalId !== '' && !externalId.includes('\0')
    ? { workspaceId, externalId }
    : undefined;
}

/** Adds the id to a stored entry. */
export const withId = (stored: Stored): BlockedId => ({ ...stored, id: idOf(stored) });

async function findByKey({ database: { prisma } }: Context, key: Key): Promise<BlockedId | undefined> {
  const stored = await prisma.blockedExternalId.findUnique({
    where: { workspaceId_externalId: { workspaceId: key.workspaceId, externalId: key.externalId } },
    include,
  });
  return stored ? withId(stored) : undefined;
}

function readReason(given: string): string {
  const reason = given.trim();
  if (reason === '' || reason.length > MAX_NAME)
    throw new InvalidValue(`A reason must have 1 to ${MAX_NAME} characters.`);
  return reason;
}

const externalIdField = text(
  { label: 'External id', help: 'external id, as clients send it', value: 'id' },
  readExternalId,
  { maxLength: MAX_EXTERNAL_ID_BYTES, isExact: true },
);

/** Builds an audit entry without the external id, which may identify a person. The entry with the id has its time. */
const entryOf = (name: 'users.block' | 'users.unblock', { workspaceId }: Key): AuditEntry => ({
  ...{ action: name, subject: { kind: 'workspace', id: workspaceId }, workspaceId },
});

/** External ids whose objects web refuses. The commands are verbs of `penstock users`. */
export const blockedIds: Resource<BlockedId> = describeResource<BlockedId>({
  noun: 'blocked-ids',
  one: 'blocked external id',
  many: 'blocked external ids',
  title: 'Blocked ids',
  sentence: 'Block external ids, and list them.',
  example: 'users blocked --workspace default',
  lead: 'External ids whose objects web refuses, with the reason of the operator or the rule that blocked them. Stored data stays.',
  scope: 'workspace',
  isOfOne: true,
  isListOnly: true,
  permit: 'pii',
  isId: (id) => keyOf(id) !== undefined,
  nameTitle: 'External id',
  columns: [
    { name: 'workspace', value: ({ workspace }) => workspace.name },
    { name: 'external_id', value: ({ externalId }) => externalId },
    { name: 'reason', title: 'Reason', value: ({ reason }) => reason },
    { name: 'blocked_at', title: 'Blocked', kind: 'time', value: ({ blockedAt }) => iso(blockedAt) },
  ],
  listing: {
    sentence: 'List the blocked external ids, with the reason of the operator or the rule that blocked them.',
    example: 'users blocked --workspace default --json',
    nextText: 'More',
  },
  async list({ database: { prisma } }, { owners = [], before, limit }) {
    const [workspaceId] = owners;
    const start = before === undefined ? undefined : keyOf(before);
    if (workspaceId === undefined) return [];
    const stored = await prisma.blockedExternalId.findMany({
      where: { workspaceId, unblockedAt: null, ...(start && { externalId: { gt: start.externalId } }) },
      orderBy: { externalId: 'asc' },
      take: limit,
      include,
    });
    return stored.map(withId);
  },
  async find(context, id, owners) {
    const key = keyOf(id);
    return key && (owners?.includes(key.workspaceId) ?? true) ? findByKey(context, key) : undefined;
  },
  nameOf: ({ externalId }) => externalId,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: {
    isWithin: true,
    options: { external_id: externalIdField },
    async find(context, { options, owner }) {
      const externalId = String(options.external_id);
      const match = await findByKey(context, { workspaceId: owner!.id, externalId });
      if (!match)
        throw new Refusal(`the external id '${externalId}' is not blocked; see penstock users blocked`);
      return match;
    },
  },
  empty: 'Block an external id that a faulty client sends for many users, for example undefined.',
  creation: creation({
    verb: 'block',
    button: 'Block external id',
    sentence: 'Block an external id. Its objects are refused within KEY_CACHE_MS, and stored data stays.',
    example: 'users block --workspace default --external-id undefined --reason "a bug of the shop"',
    permit: ['pii', 'change'],
    done: ({ KEY_CACHE_MS }) => `Blocked. Web refuses its objects within ${duration(KEY_CACHE_MS / 1000)}.`,
    fields: {
      external_id: externalIdField,
      reason: optional(
        text(
          { label: 'Reason', help: 'reason, shown in the list of blocked ids', value: 'reason' },
          readReason,
        ),
      ),
    },
    /** An id that is blocked already keeps its time and reason. Concurrent calls can exceed MAX_BLOCKED by one. */
    async run(context, { owner, values: { external_id: externalId, ...given } }) {
      const { reason = context.actor.via === 'console' ? 'blocked in the console' : 'blocked by command' } =
        given;
      const { prisma } = context.database;
      const key = { workspaceId: owner.id, externalId };
      const stored = await findByKey(context, key);
      if (stored?.unblockedAt === null) return { row: rowOf(blockedIds, stored) };
      const others = await prisma.blockedExternalId.count({
        where: { workspaceId: owner.id, unblockedAt: null },
      });
      if (others >= MAX_BLOCKED)
        throw new Refusal(
          `a workspace can have at most ${MAX_BLOCKED} blocked external ids; unblock one first`,
          'external_id',
          409,
        );
      const one = await change(context, async (tx) => {
        const result = await tx.blockedExternalId.upsert({
          where: { workspaceId_externalId: key },
          create: { ...key, reason },
          update: { reason, blockedAt: nowDate(), unblockedAt: null },
          include,
        });
        return { result, entries: [entryOf('users.block', key)] };
      });
      return { row: rowOf(blockedIds, withId(one)) };
    },
  }),
  actions: [
    action({
      verb: 'unblock',
      button: 'Unblock',
      sentence: 'Unblock an external id permanently. Takes effect within KEY_CACHE_MS.',
      example: 'users unblock --workspace default --external-id undefined',
      permit: ['pii', 'change'],
      fields: {},
      isInList: true,
      done: ({ KEY_CACHE_MS }) =>
        `Unblocked. Web accepts its objects within ${duration(KEY_CACHE_MS / 1000)}, and no rule blocks it again.`,
      async run(context, { one }) {
        const { workspaceId, externalId } = one;
        const key = { workspaceId, externalId };
        await change(context, async (tx) => {
          // The condition on unblockedAt keeps the time of the first unblocking.
          const { count } = await tx.blockedExternalId.updateMany({
            where: { ...key, unblockedAt: null },
            data: { unblockedAt: nowDate() },
          });
          return { result: count, entries: count === 0 ? [] : [entryOf('users.unblock', key)] };
        });
        const { unblockedAt } = (await findByKey(context, key))!;
        return { row: { ...rowOf(blockedIds, one), unblocked_at: iso(unblockedAt) } };
      },
    }),
  ],
});
