import { ApiError } from '../errors.ts';
import type { Database } from '../store/database.ts';
import { findExported } from '../store/profile-search.ts';
import {
  type Channel,
  findGroups,
  readAddressStates,
  readProfileStates,
} from '../store/subscription-states.ts';
import type { DirectOperation } from './operation.ts';
import {
  EXAMPLE_GROUP,
  groupId,
  readGroupId,
  readStateQuery,
  requireChannel,
  type StateQuery,
  stateParameters,
} from './subscription/states.ts';

const answers: Record<string, string> = { subscribed: 'Subscribed', unsubscribed: 'Unsubscribed' };

/** GET /subscription/status/get: the states of users in one group. */
export function subscriptionStatusGet(): DirectOperation {
  return {
    kind: 'direct',
    id: 'subscription.status.get',
    method: 'GET',
    path: '/subscription/status/get',
    permission: 'subscription.status.get',
    bucket: 'default',
    summary: 'Get the subscription states of users in a group',
    description:
      'Takes external ids, emails (email group) or phones (SMS or WhatsApp group). External ids take precedence. `Unknown` means that no state was set, or that no user has the external id. The global state of an email address has no effect on the answer.',
    listsInQuery: true,
    query: {
      type: 'object',
      required: ['subscription_group_id'],
      properties: { subscription_group_id: groupId, ...stateParameters },
    },
    replies: {
      200: {
        description: 'The states.',
        schema: {
          type: 'object',
          required: ['status', 'message'],
          properties: {
            status: {
              type: 'object',
              description:
                'States by external id, email or phone as sent. A space at the place of a `+` is returned as `+`.',
              additionalProperties: { enum: [...Object.values(answers), 'Unknown'] },
            },
            message: { const: 'success' },
          },
        },
      },
    },
    refusals: ['invalidSubscriptionGroup', 'emailAndPhone', 'tooManyIds'],
    example: {
      query: { subscription_group_id: EXAMPLE_GROUP, external_id: 'ada' },
      reply: { status: { ada: 'Unknown' }, message: 'success' },
    },

    async handle({ workspaceId }, { query }, { database }) {
      const id = readGroupId(query.subscription_group_id);
      const stateQuery = readStateQuery(query);
      const [group] = await findGroups(database.pool, [id]);
      if (group?.workspaceId !== workspaceId) throw new ApiError('invalidSubscriptionGroup');
      requireChannel(group.channel, stateQuery.kind, stateQuery.kind);
      const states = await readStates(database, group, stateQuery);
      const status = stateQuery.names.map(({ sent }) => [sent, answers[states.get(sent) ?? ''] ?? 'Unknown']);
      return { status: 200, body: { status: Object.fromEntries(status), message: 'success' } };
    },
  };
}

interface Group {
  workspaceId: string;
  id: string;
  channel: Channel;
}

/** Returns the states by sent name. */
async function readStates(
  { pool }: Database,
  group: Group,
  { kind, names }: StateQuery,
): Promise<Map<string, string>> {
  const valid = names.flatMap(({ sent, key }) => (key === undefined ? [] : [{ sent, key }]));
  const rows =
    kind === 'external_id'
      ? await readUserStates(pool, group, valid)
      : await readAddressStates(
          pool,
          { workspaceId: group.workspaceId, groupId: group.id, kind },
          valid.map(({ key }) => key),
        );
  const states = new Map(rows.map(({ name, state }) => [name, state]));
  return new Map(
    valid.flatMap(({ sent, key }) => {
      const state = states.get(key);
      return state === undefined ? [] : [[sent, state]];
    }),
  );
}

/** Returns the states of users by external id. */
async function readUserStates(
  pool: Database['pool'],
  { workspaceId, id, channel }: Group,
  names: { key: string }[],
): Promise<{ name: string; state: string }[]> {
  const wanted = names.map(({ key }, index) => ({ place: index, externalId: key }));
  const users = await findExported(pool, workspaceId, wanted);
  const address = channel === 'email' ? 'email' : 'phone';
  const states = await readProfileStates(
    pool,
    { workspaceId, groupId: id, kind: address },
    users.map((user) => user.id),
  );
  const byId = new Map(states.map(({ name, state }) => [name, state]));
  return users.flatMap((user) => {
    const state = byId.get(user.id);
    return state === undefined ? [] : [{ name: names[user.place]!.key, state }];
  });
}
