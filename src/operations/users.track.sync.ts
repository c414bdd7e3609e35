import type { TrackObject } from '../jobs/envelope.ts';
import { toProfileId } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { Schema } from '../schemas/compile.ts';
import { userAlias } from '../schemas/track.ts';
import { readProfiles, type StoredUser } from '../store/export.ts';
import { findExported, type WantedUser } from '../store/profile-search.ts';
import type { OperationOptions, Plan, QueuedOperation, Reply, Resources } from './operation.ts';
import { tracking } from './track/track.ts';

/** Maximum wait for the effect in milliseconds. Clients give up after 2 s. */
const READ_BACK_WITHIN = 1500;

/**
 * POST /users/track/sync, only with VENDOR_RULES=current: records one object, and answers with the stored attributes, event or
 * product that the object names.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrackSync(serviceIdField: string, options: OperationOptions): QueuedOperation {
  const { steps: _, ...track } = tracking({
    id: 'users.track.sync',
    path: '/users/track/sync',
    permission: 'users.track.sync',
    bucket: 'users.track.sync',
    summary: 'Record one custom event, purchase or set of attributes and read the result',
    description:
      'Exactly one object, in one of the three arrays. The answer is sent after the object has taken effect. `users` has the user with the custom attributes, the event or the product that the object names, as they are stored now. It is empty if the object may only update existing users and no user has the identifier.',
    limits: { inAll: 1 },
    ...options,
    serviceIdField,
  });
  return {
    ...track,
    readBackWithin: READ_BACK_WITHIN,
    replies: {
      201: { description: 'The object has taken effect.', schema: replySchema(serviceIdField) },
      202: {
        description: 'The object was not applied in time. It is stored on disk and will take effect.',
        schema: pendingSchema,
      },
    },
    example: {
      body: { attributes: [{ external_id: 'ada', logins: { inc: 1 } }] },
      reply: { users: [{ external_id: 'ada', custom_attributes: { logins: 2 } }], message: 'success' },
    },

    plan(caller, body) {
      const { objects, rejected, reply } = track.plan(caller, body);
      const { warnings } = reply.body as Record<string, Json>;
      const more: Record<string, Json> = warnings === undefined ? {} : { warnings };
      const [object] = objects as [TrackObject];
      return {
        objects,
        rejected,
        reply: { status: 202, body: { message: 'success', pending: true, ...more } },
        readBack: async (resources): Promise<Reply> => {
          const user = await readUser(object, { workspaceId: caller.workspaceId, serviceIdField }, resources);
          return { status: 201, body: { users: user ? [user] : [], message: 'success', ...more } };
        },
      } satisfies Plan;
    },
  };
}

/** The field of a stored user that shows the effect of an object, by kind. */
const FIELDS = { attributes: 'custom_attributes', events: 'custom_events', purchases: 'purchases' } as const;

interface ReadContext {
  workspaceId: string;
  serviceIdField: string;
}

/** Reads the user of an object in the form of the response; undefined if no user has the identifier. */
async function readUser(
  object: TrackObject,
  { workspaceId, serviceIdField }: ReadContext,
  { database: { pool } }: Pick<Resources, 'database'>,
): Promise<Record<string, Json> | undefined> {
  // An import of push tokens names no user.
  if (!object.identifier) return undefined;
  const [match] = await findExported(pool, workspaceId, [wantedOf(object.identifier)]);
  if (!match) return undefined;
  const [user] = await readProfiles(pool, workspaceId, { ids: [match.id], fields: [FIELDS[object.kind]] });
  return user && { ...shownOf(object.identifier, serviceIdField), ...effectOf(object, user) };
}

/** Returns the search for the user of an identifier. If several users share an address, the search lists the addressed user first. */
function wantedOf(identifier: NonNullable<TrackObject['identifier']>): WantedUser {
  const index = 0;
  if ('external_id' in identifier) return { place: index, externalId: identifier.external_id };
  if ('service_id' in identifier) return { place: index, id: toProfileId(identifier.service_id) };
  if (!('user_alias' in identifier)) return { place: index, ...identifier };
  const { alias_name, alias_label } = identifier.user_alias;
  return { place: index, aliasName: alias_name, aliasLabel: alias_label };
}

function shownOf(
  identifier: NonNullable<TrackObject['identifier']>,
  serviceIdField: string,
): Record<string, Json> {
  return 'service_id' in identifier ? { [serviceIdField]: identifier.service_id } : { ...identifier };
}

/** Returns the stored attributes, event or product that the object names. */
function effectOf(object: TrackObject, user: StoredUser): Record<string, Json> {
  if (object.kind === 'events') {
    const events = (user.custom_events ?? []).filter(({ name }) => name === object.name);
    return { custom_events: events };
  }
  if (object.kind === 'purchases') {
    const products = (user.purchases ?? []).filter(({ name }) => name === object.product_id);
    return { purchase_events: products.map(({ name, ...summary }) => ({ product_id: name, ...summary })) };
  }
  const stored = user.custom_attributes ?? {};
  const named = Object.keys({ ...object.set, ...object.change });
  const shown = named.filter((name) => Object.hasOwn(stored, name)).map((name) => [name, stored[name]!]);
  return { custom_attributes: Object.fromEntries(shown) };
}

const summaryOf = (name: string): Schema => ({
  type: 'array',
  items: {
    type: 'object',
    properties: {
      [name]: { type: 'string' },
      first: { type: 'string', format: 'date-time' },
      last: { type: 'string', format: 'date-time' },
      count: { type: 'integer' },
    },
  },
});

const warnings: Schema = {
  type: 'array',
  description: 'Values of the object that were shortened or omitted. Absent if there are none.',
  items: { type: 'object' },
};

const pendingSchema: Schema = {
  type: 'object',
  required: ['message', 'pending'],
  properties: { message: { const: 'success' }, pending: { const: true }, warnings },
};

const replySchema = (serviceIdField: string): Schema => ({
  type: 'object',
  required: ['users', 'message'],
  properties: {
    users: {
      type: 'array',
      maxItems: 1,
      items: {
        type: 'object',
        description: 'The identifier of the object, and its effect.',
        properties: {
          external_id: { type: 'string' },
          user_alias: userAlias,
          [serviceIdField]: { type: 'string' },
          email: { type: 'string' },
          phone: { type: 'string' },
          custom_attributes: { type: 'object', additionalProperties: true },
          custom_events: summaryOf('name'),
          purchase_events: summaryOf('product_id'),
        },
      },
    },
    message: { const: 'success' },
    warnings,
  },
});
