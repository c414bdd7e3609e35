import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { change } from './change.ts';
import { choice, name } from './fields.ts';
import { refuseTaken } from './refusal.ts';
import { action, type Context, creation, describeResource, iso, keyset, readById } from './resource.ts';

const channels = ['email', 'sms', 'whatsapp'] as const;

const include = { workspace: { select: { name: true } } } satisfies Prisma.SubscriptionGroupInclude;

export type Group = Prisma.SubscriptionGroupGetPayload<{ include: typeof include }>;

interface NewGroup {
  /** Absent for a new id. */
  id?: string | undefined;
  workspaceId: string;
  name: string;
  channel: string;
}

/**
 * Creates a subscription group.
 * @throws {Refusal} if the name is taken
 */
export function createGroup(
  context: Pick<Context, 'database' | 'actor'>,
  { id = newId(), workspaceId, name: called, channel }: NewGroup,
): Promise<Group> {
  return change(context, async (tx) => ({
    result: await tx.subscriptionGroup.create({ data: { id, workspaceId, name: called, channel }, include }),
    entries: [
      {
        action: 'subscription_groups.create',
        subject: { kind: 'subscription_group', id },
        workspaceId,
        detail: { name: called, channel },
      },
    ],
  })).catch(
    refuseTaken(
      `this workspace already has a group with the name '${called}' (archived groups keep their names)`,
      'name',
    ),
  );
}

/** Archives a group. A repeated archive keeps the time of the first one. */
function archive(context: Context, { id, workspaceId, name: called }: Group): Promise<Group> {
  return change(context, async (tx) => {
    const { count } = await tx.subscriptionGroup.updateMany({
      where: { id, archivedAt: null },
      data: { archivedAt: nowDate() },
    });
    const result = await tx.subscriptionGroup.findUniqueOrThrow({ where: { id }, include });
    const subject = { kind: 'subscription_group', id };
    const entry = { action: 'subscription_groups.archive' as const, subject, workspaceId };
    return { result, entries: count === 0 ? [] : [{ ...entry, detail: { name: called } }] };
  });
}

export const groups = describeResource<Group>({
  noun: 'groups',
  one: 'subscription group',
  many: 'groups',
  nouns: 'subscription groups',
  title: 'Groups',
  sentence:
    'Create, list and archive subscription groups, to which users subscribe and from which they unsubscribe.',
  example: 'groups list --workspace default',
  lead: 'Users subscribe to subscription groups. Clients send the id of a group as subscription_group_id.',
  scope: 'workspace',
  isOfOne: true,
  permit: 'groups',
  columns: [
    { name: 'subscription_group_id', title: 'Id', kind: 'id', value: ({ id }) => id },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace.name, not: ['list'] },
    { name: 'name', value: (group) => group.name },
    { name: 'channel', title: 'Channel', value: ({ channel }) => channel },
    { name: 'created_at', title: 'Created', kind: 'time', value: ({ createdAt }) => iso(createdAt) },
    {
      name: 'archived_at',
      title: 'State',
      value: ({ archivedAt }) => iso(archivedAt),
      shown: ({ archivedAt }) =>
        archivedAt ? { badge: 'archived', at: archivedAt } : { badge: 'in use', tone: 'good' },
    },
  ],
  listing: {
    sentence: 'List the subscription groups, oldest first, including archived ones.',
    example: 'groups list --workspace default --json',
  },
  list: ({ database }, page) =>
    database.prisma.subscriptionGroup.findMany({ ...keyset('workspaceId', page), include }),
  find: async ({ database }, id) =>
    (await database.prisma.subscriptionGroup.findUnique({ where: { id }, include })) ?? undefined,
  nameOf: (group) => group.name,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: readById('group'),
  empty: 'Preference centers show the groups that are in use.',
  creation: creation({
    verb: 'create',
    button: 'Create group',
    sentence: 'Create a subscription group and show its id, which clients send as subscription_group_id.',
    example: 'groups create --workspace default --name News --channel email',
    permit: 'groups',
    done: 'Created. Clients use the id below.',
    fields: {
      name: name('name, unique among the groups of the workspace'),
      channel: choice({ label: 'Channel', help: 'channel of its messages' }, channels),
    },
    run: async (context, { owner, values }) => ({
      one: await createGroup(context, { workspaceId: owner.id, ...values }),
    }),
  }),
  actions: [
    action({
      verb: 'archive',
      button: 'Archive group',
      sentence: 'Archive a subscription group. Its states stay, and later changes to them are ignored.',
      example: 'groups archive 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
      permit: 'groups',
      fields: {},
      lead: 'Permanent. The states of users stay, and later changes to them are ignored.',
      isDanger: true,
      isOffered: ({ archivedAt }: Group) => archivedAt === null,
      confirm: (group: Group) => group.name,
      done: 'Archived. Its name stays reserved.',
      run: async (context, { one }) => ({ one: await archive(context, one) }),
    }),
  ],
});
