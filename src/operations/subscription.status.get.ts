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
  type Asked,
  EXAMPLE_GROUP,
  groupId,
  queried,
  readAsked,
  readGroupId,
  requireChannel,
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
      properties: { subscription_group_id: groupId, ...queried },
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
      const asked = readAsked(query);
      const [group] = await findGroups(database.pool, [id]);
      if (group?.workspaceId !== workspaceId) throw new ApiError('invalidSubscriptionGroup');
      requireChannel(group.channel, asked.kind, asked.kind);
      const states = await readStates(database, group, asked);
      const status = asked.names.map(({ meant }) => [meant, answers[states.get(meant) ?? ''] ?? 'Unknown']);
      return { status: 200, body: { status: Object.fromEntries(status), message: 'success' } };
    },
  };
}

interface Group {
  workspaceId: string;
  id: string;
  channel: Channel;
}

/** The states by what was meant. */
async function readStates(
  { pool }: Database,
  group: Group,
  { kind, names }: Asked,
): Promise<Map<string, string>> {
  const known = names.flatMap(({ meant, known }) => (known === undefined ? [] : [{ meant, known }]));
  const found =
    kind === 'external_id'
      ? await ofUsers(pool, group, known)
      : await readAddressStates(
          pool,
          { workspaceId: group.workspaceId, groupId: group.id, kind },
          known.map((name) => name.known),
        );
  const states = new Map(found.map(({ name, state }) => [name, state]));
  return new Map(
    known.flatMap((name) => {
      const state = states.get(name.known);
      return state === undefined ? [] : [[name.meant, state]];
    }),
  );
}

/** The states by external id. */
async function ofUsers(
  pool: Database['pool'],
  { workspaceId, id, channel }: Group,
  known: { known: string }[],
): Promise<{ name: string; state: string }[]> {
  const wanted = known.map((name, place) => ({ place, externalId: name.known }));
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
    return state === undefined ? [] : [{ name: known[user.place]!.known, state }];
  });
}
