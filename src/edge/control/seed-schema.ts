import type { Schema } from '../../schemas/compile.ts';

const name: Schema = {
  type: 'string',
  minLength: 1,
  maxLength: 255,
  rule: 'it must have 1 to 255 characters',
};
const id: Schema = {
  type: 'string',
  format: 'uuid',
  rule: 'it must be a UUID',
  description: 'Id, if your tests need a fixed one.',
};
const objects: Schema = { type: 'array', items: { type: 'object', rule: 'it must be an object' } };

export const sources: Record<string, { properties: Record<string, Schema>; required: string[] }> = {
  folder: { properties: { path: name, format: name }, required: ['path', 'format'] },
  postgres: {
    properties: {
      ...{ host: name, database: name, table: name, user: name },
      port: { type: 'integer', minimum: 1, maximum: 65_535 },
      tls: { enum: ['off', 'on', 'verified'], rule: 'it must be off, on or verified' },
      password: { type: 'string' },
    },
    required: ['host', 'database', 'table', 'user', 'password'],
  },
  s3: {
    properties: {
      ...{ bucket: name, region: name, format: name, endpoint: name, access_key_id: name },
      ...{ prefix: { type: 'string' }, secret_access_key: { type: 'string' } },
    },
    required: ['bucket', 'region', 'format', 'access_key_id', 'secret_access_key'],
  },
};

export const member = (properties: Record<string, Schema>, required: string[]): Schema => ({
  type: 'object',
  additionalProperties: false,
  properties,
  required,
});

/** Schema of a seed. Attributes, events, purchases and preference centers follow the rules of their operations. */
export const seedSchema: Schema = {
  ...member(
    {
      subscription_groups: {
        type: 'array',
        description: 'Subscription groups to create.',
        items: member(
          {
            ...{ id, name },
            channel: { enum: ['email', 'sms', 'whatsapp'], rule: 'it must be email, sms or whatsapp' },
          },
          ['name', 'channel'],
        ),
      },
      users: {
        type: 'array',
        description:
          'Users. Each has the identifiers of an object of `POST /users/track` (`external_id`, `user_alias`, `email` or `phone`).',
        items: {
          ...member(
            {
              external_id: { type: ['string', 'integer'] },
              user_alias: { type: 'object' },
              email: { type: 'string' },
              phone: { type: 'string' },
              attributes: { type: 'object', description: 'As in `POST /users/track`.' },
              aliases: {
                ...objects,
                description: 'Aliases, each with `alias_name` and `alias_label`. Need `external_id`.',
              },
              subscription_groups: {
                type: 'object',
                description:
                  'States by name of a group of this seed, or by id: `subscribed` or `unsubscribed`. Need `external_id`.',
                additionalProperties: {
                  enum: ['subscribed', 'unsubscribed'],
                  rule: 'it must be subscribed or unsubscribed',
                },
              },
              events: { ...objects, description: 'Events of this user; `time` is the present by default.' },
              purchases: {
                ...objects,
                description: 'Purchases of this user; `time` is the present by default.',
              },
            },
            [],
          ),
          dependentRequired: { aliases: ['external_id'], subscription_groups: ['external_id'] },
        },
      },
      events: {
        ...objects,
        description: 'Events as in `POST /users/track`; `time` is the present by default.',
      },
      purchases: {
        ...objects,
        description: 'Purchases as in `POST /users/track`; `time` is the present by default.',
      },
      preference_centers: { ...objects, description: 'Bodies of `POST /preference_center/v1`.' },
      segments: {
        type: 'array',
        description: 'Segments to create.',
        items: member(
          {
            ...{ id, name },
            purpose: { type: 'string', maxLength: 1000 },
            definition: { type: 'object', description: 'The filter.' },
          },
          ['name', 'definition'],
        ),
      },
      integrations: {
        type: 'array',
        description: 'Warehouse syncs to create.',
        items: member(
          {
            ...{ id, name },
            kind: {
              enum: ['attributes', 'events', 'purchases', 'deletes'],
              rule: 'it must be attributes, events, purchases or deletes',
            },
            source: {
              type: 'object',
              required: ['type'],
              description: `Members as the options of \`penstock integrations create\`: ${Object.entries(
                sources,
              )
                .map(([type, { properties }]) => `\`${type}\` with ${Object.keys(properties).join(', ')}`)
                .join('; ')}.`,
              properties: {
                type: { enum: Object.keys(sources), rule: 'it must be folder, postgres or s3' },
              },
            },
            schedule: { type: 'string', description: 'For example `every 15 minutes`.' },
            update_existing_only: { type: 'boolean' },
            draft: {
              type: 'boolean',
              description: '`true`: stored as a draft if the source cannot be read.',
            },
          },
          ['name', 'kind', 'source'],
        ),
      },
    },
    [],
  ),
};
