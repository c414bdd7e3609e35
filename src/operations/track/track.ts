import {
  ApiError,
  entriesOf,
  type Rejection,
  type RejectionEntry,
  refusalBy,
  rejectionOf,
} from '../../errors.ts';
import type { AcceptedObject, TrackKind, TrackObject } from '../../jobs/envelope.ts';
import type { LongStrings } from '../../profile/attribute-rule.ts';
import { identifierText } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { type Refusal, refuse } from '../../profile/refusal.ts';
import { asList } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../../schemas/track.ts';
import type { VendorRules } from '../../schemas/vendor-rules.ts';
import type { Caller, Plan, QueuedOperation, RefusedRequest } from '../operation.ts';
import { createAccept } from './accept.ts';
import { errorCodeOf } from './error-codes.ts';

/** The kinds in the order in which the objects of a request take effect. */
const kinds: readonly TrackKind[] = ['attributes', 'events', 'purchases'];

/** Number of objects per step. A step for each object would cost as much as its validation. */
const OBJECTS_OF_A_STEP = 8;

/** Size limits of one request. */
interface TrackLimits {
  /** Maximum number of objects in each of the three arrays. */
  ofArray?: number;
  /** Maximum number of objects in the three arrays together. */
  inAll?: number;
  /** Maximum number of objects with the same identifier. Further ones are refused. */
  ofUser?: number;
}

/** The members in which the endpoints for tracking differ. */
type TrackForm = Pick<
  QueuedOperation,
  'id' | 'path' | 'permission' | 'bucket' | 'summary' | 'description' | 'maxBytes' | 'tooLarge' | 'isBulk'
> & {
  limits: TrackLimits;
  /** Wire name of the service id. */
  serviceIdField: string;
  longStrings?: LongStrings | undefined;
  rules?: VendorRules | undefined;
  /** Whether `errors` contains the vendor's error codes instead of sentences. */
  hasErrorCodes?: boolean;
};

/**
 * Creates an operation that records attributes, events and purchases.
 *
 * Each object is validated on its own. The answer lists the invalid objects by array and index, and the others are
 * stored. A request without a valid object is refused.
 */
export function tracking({
  limits,
  serviceIdField,
  longStrings,
  rules,
  hasErrorCodes = false,
  ...described
}: TrackForm): QueuedOperation {
  const accept = createAccept(serviceIdField, { longStrings, rules });
  const { ofArray = Number.POSITIVE_INFINITY, inAll = Number.POSITIVE_INFINITY } = limits;
  const tooManyOfUser = refuse(
    'too_many',
    '',
    `too many objects for this user: at most ${limits.ofUser} objects per request. Send the rest in another request.`,
  );

  const refusalOf = (refusal: Refusal, object: Json): Refusal => {
    const code = hasErrorCodes ? errorCodeOf(refusal, object) : undefined;
    return code === undefined ? refusal : { ...refusal, error: code };
  };

  return {
    ...described,
    kind: 'queued',
    method: 'POST',
    body: bodySchema(serviceIdField, { maxItems: limits.ofArray ?? limits.inAll, rules }),
    replies: {
      201: {
        description: 'The counted objects are stored on disk and will take effect.',
        schema: acceptedReply,
      },
    },
    refusals: ['nothingValid', 'tooManyObjects'],
    errorBody: refusedBody,
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
    const warnings: RejectionEntry[] = [];
    const reply: Record<string, Json> = {};
    const isUnderLimit = createUserLimit(limits.ofUser);
    const arrays = kinds.map((kind) => asList(body[kind]));
    let before = 0;
    for (const [kindIndex, { length }] of arrays.entries()) {
      const room = Math.min(ofArray, inAll - before);
      if (length > room) throw tooManyObjects(kinds[kindIndex]!, { index: room, count: length, limits });
      before += length;
    }
    for (const [kindIndex, kind] of kinds.entries()) {
      const values = arrays[kindIndex]!;
      const before = objects.length;
      for (let index = 0; index < values.length; index++) {
        const verdict = accept[kind](values[index]!, index, caller);
        if ('error' in verdict)
          rejected.push(rejectionOf(refusalOf(verdict, values[index]!), { input_array: kind, index }));
        else if (!isUnderLimit(verdict.object))
          rejected.push(rejectionOf(tooManyOfUser, { input_array: kind, index }));
        else {
          objects.push(verdict.object);
          if (verdict.warnings)
            warnings.push(...verdict.warnings.map((type) => ({ type, input_array: kind, index })));
        }
        if ((index + 1) % OBJECTS_OF_A_STEP === 0) yield;
      }
      if (objects.length > before) reply[`${kind}_processed`] = objects.length - before;
    }
    if (objects.length === 0) throw new ApiError('nothingValid', { rejected });
    reply.message = 'success';
    if (rejected.length > 0) reply.errors = entriesOf(rejected);
    if (warnings.length > 0) reply.warnings = warnings;
    return { objects, rejected, reply: { status: 201, body: reply } };
  }
}

/** Creates the error, with the position of the first object over the limit. */
function tooManyObjects(
  kind: TrackKind,
  { index, count, limits: { ofArray, inAll } }: { index: number; count: number; limits: TrackLimits },
): ApiError {
  const rule =
    inAll === undefined
      ? `at most ${ofArray} objects per array.`
      : `at most ${inAll} objects in the three arrays together, of which ${index} are left for '${kind}'.`;
  const fact = `'${kind}' has ${count} objects; ${rule}`;
  const rejected = [rejectionOf(refusalBy('tooManyObjects'), { input_array: kind, index })];
  return new ApiError('tooManyObjects', { fact, rejected });
}

/**
 * Builds the body of an error answer. Only a 400 has `errors`: clients look up each entry's `index` in the array that
 * they sent. If the cause is the request as a whole, the entry has the position of its first object; an entry has no
 * `index` only if the request has no object.
 */
function refusedBody({ message, errors: rejected, status, body = {} }: RefusedRequest): Json {
  if (status !== 400) return { message };
  const first = kinds.find((kind) => asList(body[kind]).length > 0);
  return { message, errors: rejected ?? [{ type: message, ...(first && { input_array: first, index: 0 }) }] };
}

/**
 * Creates a check that an identifier has at most `limit` objects in the request. Two identifiers of one user are
 * counted separately.
 */
function createUserLimit(limit = Number.POSITIVE_INFINITY): (object: TrackObject) => boolean {
  if (limit === Number.POSITIVE_INFINITY) return () => true;
  const named = new Map<string, number>();
  return ({ identifier }) => {
    if (identifier === undefined) return true;
    const name = identifierText(identifier);
    const count = (named.get(name) ?? 0) + 1;
    named.set(name, count);
    return count <= limit;
  };
}

const counter = (kind: string) => ({ type: 'integer', description: `Number of ${kind} stored.` }) as const;

const rejection: Schema = {
  type: 'object',
  required: ['type', 'input_array', 'index'],
  properties: {
    type: { type: 'string', description: 'The field and the rule.' },
    input_array: { enum: kinds },
    index: { type: 'integer', minimum: 0, description: 'Position in the array, from 0.' },
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
        'Values of stored objects that were shortened or omitted, at most 11 entries for each object. Absent if there are none.',
      items: rejection,
    },
  },
};

const refusedReply: Schema = {
  type: 'object',
  required: ['message'],
  properties: {
    message: { type: 'string' },
    errors: {
      type: 'array',
      description:
        'Answers with status 400 only: every refused object. If the request has too many objects, the first one over the limit. If the request has no objects, one entry without `input_array` and `index`.',
      items: {
        ...rejection,
        required: ['type'],
        dependentRequired: { input_array: ['index'], index: ['input_array'] },
      },
    },
  },
};

function bodySchema(
  serviceIdField: string,
  { maxItems, rules }: { maxItems: number | undefined; rules: VendorRules | undefined },
): Schema {
  const array = (items: Schema) => ({ type: 'array', ...(maxItems !== undefined && { maxItems }), items });
  return {
    type: 'object',
    properties: {
      attributes: array(attributesSchema(serviceIdField, rules)),
      events: array(eventSchema(serviceIdField, rules)),
      purchases: array(purchaseSchema(serviceIdField, rules)),
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
        currency: 'USD',
        price: 12.5,
        quantity: 2,
        time: '2026-01-31T12:05:00Z',
      },
    ],
  },
  reply: { attributes_processed: 1, events_processed: 1, purchases_processed: 1, message: 'success' },
};
