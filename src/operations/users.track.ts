import { ApiError, BadRequest, errors, type Rejection } from '../errors.ts';
import type { AcceptedObject, TrackKind } from '../jobs/envelope.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import type { Json } from '../profile/json.ts';
import type { Schema } from '../schemas/compile.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../schemas/track.ts';
import type { Caller, Plan, QueuedOperation } from './operation.ts';
import { createAccept } from './track/accept.ts';

/** Objects take effect in this order within a request. */
const kinds: readonly TrackKind[] = ['attributes', 'events', 'purchases'];

/** Objects in each of the three arrays. */
const MAX_OBJECTS = 75;

/** Objects that are judged in a row: a step for each would cost as much as a rule. */
const OBJECTS_OF_A_STEP = 8;

/**
 * POST /users/track: records attributes, events and purchases.
 *
 * Each object is judged alone: the reply names those that cannot be applied by array and place, the others
 * are stored. A request without one valid object is refused.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersTrack(serviceIdField: string, longStrings: LongStrings = 'cut'): QueuedOperation {
  const accept = createAccept(serviceIdField, longStrings);

  return {
    kind: 'queued',
    id: 'users.track',
    method: 'POST',
    path: '/users/track',
    permission: 'users.track',
    bucket: 'users.track',
    summary: 'Record custom events, purchases and profile attributes',
    description:
      'At most 75 objects in each array. Objects take effect in the order attributes, events, purchases, and after everything accepted before for the same identifier. An object that cannot be applied is named in `errors`; the others are stored before the answer is sent. What was cut or left out of one of these is named in `warnings`.',
    body: bodySchema(serviceIdField),
    replies: {
      201: { description: 'The counted objects are on disk and will take effect.', schema: acceptedReply },
    },
    refusals: ['nothingValid', 'tooManyObjects'],
    errorBody: (message, errors) => ({ message, errors: errors ?? [{ type: message }] }),
    errorSchema: refusedReply,
    example,

    plan(caller, body) {
      const all = steps(caller, body);
      for (let step = all.next(); ; step = all.next()) if (step.done) return step.value;
    },
    steps,
  };

  function* steps(caller: Caller, body: Record<string, Json>): Generator<void, Plan> {
    const objects: AcceptedObject[] = [];
    const rejected: Rejection[] = [];
    const warnings: Rejection[] = [];
    const counts: Record<string, number> = {};
    for (const kind of kinds) {
      const values = asArray(body[kind]);
      if (values.length > MAX_OBJECTS) throw new ApiError('tooManyObjects');
      const before = objects.length;
      for (let index = 0; index < values.length; index++) {
        const verdict = accept[kind](values[index]!, index, caller);
        if ('error' in verdict) rejected.push({ type: verdict.error, input_array: kind, index });
        else {
          objects.push(verdict.object);
          if (verdict.warnings)
            warnings.push(...verdict.warnings.map((type) => ({ type, input_array: kind, index })));
        }
        if ((index + 1) % OBJECTS_OF_A_STEP === 0) yield;
      }
      if (objects.length > before) counts[`${kind}_processed`] = objects.length - before;
    }
    if (objects.length === 0) throw new BadRequest(errors.nothingValid.message, rejected);
    return {
      objects,
      rejected: rejected.length,
      reply: {
        status: 201,
        body: {
          ...counts,
          message: 'success',
          ...(rejected.length > 0 && { errors: rejected }),
          ...(warnings.length > 0 && { warnings }),
        },
      },
    };
  }
}

/** Clients send one object where an array is meant, and null for none. */
function asArray(value: Json | undefined): Json[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

const counter = (kind: string) => ({ type: 'integer', description: `Number of ${kind} stored.` }) as const;

const rejection: Schema = {
  type: 'object',
  required: ['type', 'input_array', 'index'],
  properties: {
    type: { type: 'string', description: 'The field and the rule.' },
    input_array: { enum: kinds },
    index: { type: 'integer', minimum: 0, description: 'Place in that array.' },
  },
};

const acceptedReply: Schema = {
  type: 'object',
  required: ['message'],
  properties: {
    message: { const: 'success' },
    attributes_processed: counter('attribute objects'),
    events_processed: counter('events'),
    purchases_processed: counter('purchases'),
    errors: { type: 'array', description: 'The objects that were refused.', items: rejection },
    warnings: {
      type: 'array',
      description:
        'What was cut or left out of objects that were stored, at most 11 entries for each. Absent when there is nothing.',
      items: rejection,
    },
  },
};

const refusedReply: Schema = {
  type: 'object',
  required: ['message', 'errors'],
  properties: {
    message: { type: 'string' },
    errors: {
      type: 'array',
      description:
        'Every refused object; without array and place the message, when it is the request as a whole.',
      items: {
        ...rejection,
        required: ['type'],
        dependentRequired: { input_array: ['index'], index: ['input_array'] },
      },
    },
  },
};

function bodySchema(serviceIdField: string): Schema {
  const array = (items: Schema) => ({ type: 'array', maxItems: MAX_OBJECTS, items });
  return {
    type: 'object',
    properties: {
      attributes: array(attributesSchema(serviceIdField)),
      events: array(eventSchema(serviceIdField)),
      purchases: array(purchaseSchema(serviceIdField)),
    },
  };
}

const example: QueuedOperation['example'] = {
  body: {
    attributes: [{ external_id: 'ada', first_name: 'Ada', email: 'ada@example.com', logins: { inc: 1 } }],
    events: [
      { external_id: 'ada', name: 'signed_up', time: '2026-01-31T12:00:00Z', properties: { plan: 'pro' } },
    ],
    purchases: [
      {
        external_id: 'ada',
        product_id: 'book',
        currency: 'EUR',
        price: 12.5,
        quantity: 2,
        time: '2026-01-31T12:05:00Z',
      },
    ],
  },
  reply: { attributes_processed: 1, events_processed: 1, purchases_processed: 1, message: 'success' },
};
