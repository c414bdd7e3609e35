import { prioritizations } from '../profile/identifier.ts';
import type { ObjectKind } from './envelope.ts';

/**
 * Jobs that web writes and workers read. Names are permanent, and shapes only gain fields, because a worker
 * may receive jobs of the previous release.
 */
export const jobs = { envelope: 'envelope', fence: 'fence' } as const;
const text = { type: 'string' } as const;
const uuid = { ...text, format: 'uuid' } as const;
const alias = {
  type: 'object',
  required: ['alias_name', 'alias_label'],
  properties: { alias_name: text, alias_label: text },
} as const;
const identifier = {
  type: 'object',
  minProperties: 1,
  maxProperties: 1,
  additionalProperties: false,
  properties: {
    external_id: text,
    user_alias: alias,
    service_id: { ...text, pattern: '^[0-9a-f]{24}$' },
    email: text,
    phone: text,
  },
} as const;
const position = {
  id: text,
  index: { type: 'integer', minimum: 0 },
} as const;
const base = { ...position, create: { type: 'boolean' }, identifier } as const;
const required = ['id', 'index'] as const;
const selector = {
  type: 'object',
  required: ['identifier'],
  properties: { identifier, prioritization: { type: 'array', items: { enum: prioritizations } } },
} as const;
/** Returns the schema of an operation whose fields are all required. */
const operation = (properties: Record<string, object>) => ({
  type: 'object',
  required: [...required, ...Object.keys(properties)],
  properties: { ...position, ...properties },
});
const activity = { time: text, app_id: text, properties: { type: 'object' } } as const;

const elements = { type: 'array' } as const;
const keyed = { type: 'object', required: ['key'], properties: { key: text } } as const;

/** The schema of an `AttributeChange`. */
const change = {
  type: 'object',
  minProperties: 1,
  maxProperties: 1,
  additionalProperties: false,
  rule: "must be an object with 'inc', 'array', 'merge' or 'objects'",
  properties: {
    inc: { type: 'number' },
    array: { type: 'object', properties: { add: elements, remove: elements } },
    merge: { type: 'object' },
    objects: {
      type: 'object',
      properties: {
        add: elements,
        remove: { type: 'array', items: keyed },
        update: { type: 'array', items: keyed },
      },
    },
  },
} as const;

/** JSON schemas of accepted objects by kind, for all releases. */
export const objectSchemas: Record<ObjectKind, object> = {
  attributes: {
    type: 'object',
    required: [...required],
    properties: {
      ...base,
      standard: { type: 'object' },
      set: { type: 'object' },
      change: { type: 'object', additionalProperties: change },
    },
  },
  events: {
    type: 'object',
    required: [...required, 'identifier', 'name', 'time'],
    properties: { ...base, ...activity, name: text },
  },
  purchases: {
    type: 'object',
    required: [...required, 'identifier', 'product_id', 'currency', 'price', 'quantity', 'time'],
    properties: {
      ...base,
      ...activity,
      product_id: text,
      currency: text,
      price: { type: 'number' },
      quantity: { type: 'integer' },
    },
  },
  alias_new: {
    type: 'object',
    required: [...required, 'user_alias'],
    properties: { ...position, user_alias: alias, external_id: text },
  },
  alias_update: operation({ alias_label: text, old_alias_name: text, new_alias_name: text }),
  identify: {
    type: 'object',
    required: [...required, 'user', 'external_id'],
    properties: { ...position, user: selector, external_id: text, keeps_labels: { const: true } },
  },
  merge: operation({ merge: selector, keep: selector }),
  delete: operation({ user: selector }),
  external_id_rename: operation({ current_external_id: text, new_external_id: text }),
  external_id_remove: operation({ external_id: text }),
  group_state: operation({
    identifier,
    subscription_group_id: text,
    subscription_state: { enum: ['subscribed', 'unsubscribed'] },
  }),
  email_change: {
    type: 'object',
    required: [...required, 'email'],
    properties: {
      ...position,
      email: text,
      state: { enum: ['subscribed', 'unsubscribed', 'opted_in'] },
      hard_bounced: { type: 'boolean' },
      marked_as_spam: { const: false },
    },
  },
};

export const requestSchema = {
  type: 'object',
  required: ['request_id', 'workspace_id', 'accepted_at'],
  properties: {
    request_id: text,
    workspace_id: uuid,
    accepted_at: text,
    count: { type: 'integer', minimum: 0 },
    objects: { type: 'integer', minimum: 1 },
  },
} as const;

export const fenceSchema = {
  type: 'object',
  required: ['id', 'lanes'],
  properties: {
    id: uuid,
    lanes: { type: 'array', minItems: 2, items: { type: 'integer', minimum: 0 } },
    workspace_id: text,
  },
} as const;

/**
 * Jobs of the queue `syncs`. A job only triggers work; the runs themselves are in tables. Names are
 * permanent, and shapes only gain fields, as for the lanes.
 */
export const SYNC_QUEUE = 'syncs';

/** `sync`: a run is ready to be processed. `scheduled`: a run of an integration is due. */
export const syncJobs = { sync: 'sync', scheduled: 'scheduled' } as const;

/** Data of a `sync` job. The job's id is the run's id. */
export interface SyncJobData {
  /** Id of the run's row in sync_jobs. */
  job_id: string;
}

/** Data of a `scheduled` job. A job scheduler whose id is the integration's id adds it. */
export interface ScheduledJobData {
  integration_id: string;
}
