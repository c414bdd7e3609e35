import { grouped } from '../platform/format.ts';
import { readProfiles } from '../store/export.ts';
import { findExported, MAX_ANSWERED } from '../store/profile-search.ts';
import { toUserObject, userFields } from './export/user-fields.ts';
import type { DirectOperation } from './operation.ts';
import { count, readOffset, readWholeNumber } from './query-parameters.ts';
import { EXAMPLE_GROUP, readStateQueryOrBlank, stateParameters } from './subscription/states.ts';

/** Maximum number of users per page. */
const MAX_USERS = 100;

/** The fields of a user, in the form of /users/export/ids. Clients expect all of them. */
const { email, phone, external_id, subscription_groups } = userFields('service_id');
const shown = Object.entries({ email, phone, external_id, subscription_groups }).map(
  ([name, field]) => [name, field!] as [string, NonNullable<typeof field>],
);

const noData = { email: null, phone: null, external_id: null, subscription_groups: [] };

/** GET /subscription/user/status: all groups of users. */
export function subscriptionGroupsGet(): DirectOperation {
  return {
    kind: 'direct',
    id: 'subscription.groups.get',
    method: 'GET',
    path: '/subscription/user/status',
    permission: 'subscription.groups.get',
    bucket: 'default',
    summary: 'Get the subscription groups of users',
    description: `Lists the groups for which a state was set. External ids take precedence over emails and phones. For an email or phone, up to ${grouped(MAX_ANSWERED)} users are listed: users with an external id first, then the most recently updated. Identifiers that match no user are omitted.`,
    listsInQuery: true,
    query: {
      type: 'object',
      properties: {
        ...stateParameters,
        limit: count(1, MAX_USERS, `Maximum number of users, by default ${MAX_USERS}.`),
        offset: count(0, undefined, 'Number of users to skip, by default 0.'),
      },
    },
    replies: {
      200: {
        description: 'The users found.',
        schema: {
          type: 'object',
          required: ['users', 'total_count', 'message'],
          properties: {
            users: {
              type: 'array',
              items: {
                title: 'SubscriptionUser',
                type: 'object',
                required: shown.map(([name]) => name),
                properties: {
                  ...Object.fromEntries(
                    shown.map(([name, { schema }]) => [name, { ...schema, type: [schema.type, 'null'] }]),
                  ),
                  subscription_groups: subscription_groups!.schema,
                },
                additionalProperties: false,
              },
            },
            total_count: { type: 'integer', minimum: 0, description: 'Number of users on all pages.' },
            message: { const: 'success' },
          },
        },
      },
    },
    refusals: ['emailAndPhone', 'tooManyIds'],
    example: {
      query: { external_id: 'ada' },
      reply: {
        users: [
          {
            email: 'ada@example.com',
            phone: null,
            external_id: 'ada',
            subscription_groups: [
              { id: EXAMPLE_GROUP, name: 'News', channel: 'email', status: 'Subscribed' },
            ],
          },
        ],
        total_count: 1,
        message: 'success',
      },
    },

    async handle({ workspaceId }, { query }, { database }) {
      const { kind, names } = readStateQueryOrBlank(query);
      const limit = readWholeNumber(query, 'limit', { from: 1, to: MAX_USERS, otherwise: MAX_USERS });
      const offset = readOffset(query);
      const member = kind === 'external_id' ? 'externalId' : kind;
      const wanted = names.flatMap(({ key }, index) =>
        key === undefined ? [] : [{ place: index, [member]: key }],
      );
      const matches = await findExported(database.pool, workspaceId, wanted);
      const ids = [...new Set(matches.map(({ id }) => id))];
      const page = ids.slice(offset, offset + limit);
      const stored = await readProfiles(database.pool, workspaceId, {
        ids: page,
        fields: ['subscription_groups'],
      });
      const users = new Map(stored.map((user) => [user.id, { ...noData, ...toUserObject(user, shown) }]));
      return {
        status: 200,
        body: {
          users: page.flatMap((id) => users.get(id) ?? []),
          total_count: ids.length,
          message: 'success',
        },
      };
    },
  };
}
