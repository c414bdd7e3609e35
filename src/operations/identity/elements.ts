import {
  ApiError,
  BadRequest,
  type ErrorName,
  entriesOf,
  type Rejection,
  type RejectionEntry,
  rejectionOf,
} from '../../errors.ts';
import type { IdentityObject, SubscriptionObject } from '../../jobs/envelope.ts';
import { newId } from '../../platform/ids.ts';
import { prioritizations } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { invalid, type Refusal, refuse, required } from '../../profile/refusal.ts';
import { asRecord, findUnstorable, isRecord } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Plan, QueuedOperation, RefusedRequest, Reply } from '../operation.ts';

/** Elements of each array of an identity or subscription request. */
export const MAX_ELEMENTS = 50;

/** What an element can become. */
type Element = IdentityObject | SubscriptionObject;

/** What became of the elements of a request's arrays, in their order. */
export interface Judged<T extends Place = Element> {
  objects: T[];
  rejected: Rejection[];
}

/** An object as its element says it, before it has an id and a place. */
type Content = WithoutPlace<Element>;
type WithoutPlace<T> = T extends unknown ? Omit<T, keyof Place> : never;
type Place = Pick<IdentityObject, 'id' | 'request' | 'index'>;

/** What an array of a request holds. */
export interface ArrayForm {
  /** What the elements are; a value that could not be one is no array of one. */
  of: 'objects' | 'strings';
  /** The error that more than 50 elements end with. */
  tooMany: ErrorName;
}

/**
 * The elements of one of a request's arrays; undefined when the request does not have it. Clients send one
 * element where an array is meant, and null for none.
 *
 * @throws {BadRequest|ApiError} when it is no array, or has more than 50 elements
 */
export function elementsOf(
  body: Record<string, Json>,
  field: string,
  { of, tooMany }: ArrayForm,
): Json[] | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value)) {
    if (value.length > MAX_ELEMENTS) throw tooManyElements(tooMany, { field, count: value.length });
    return value;
  }
  const isElement = of === 'objects' ? isRecord(value) : ['string', 'number'].includes(typeof value);
  if (!isElement) throw new BadRequest(invalid(field, `it must be an array of ${of}`, 'wrong_type'));
  return [value];
}

/** Names the limit and the count. */
export function tooManyElements(
  entry: ErrorName,
  { field, count }: { field: string; count: number },
): ApiError {
  return new ApiError(entry, { fact: `'${field}' has ${count} elements; the limit is ${MAX_ELEMENTS}.` });
}

/**
 * As `elementsOf`, for an array that a request must have and that must not be empty.
 * @throws {BadRequest|ApiError} when it is missing, empty, no array, or has more than 50 elements
 */
export function requiredElements(body: Record<string, Json>, field: string, form: ArrayForm): Json[] {
  const elements = elementsOf(body, field, form);
  if (elements === undefined) throw new BadRequest(required(field));
  return requireSome(field, elements);
}

/** @throws {BadRequest} when there is no element */
export function requireSome(field: string, elements: Json[]): Json[] {
  if (elements.length === 0) throw new BadRequest(invalid(field, 'it must not be empty'));
  return elements;
}

/** Judges each element of an array alone: storable values first, then what `read` says of it. */
export function judge<C extends Content>(
  field: string,
  elements: Json[],
  read: (element: Json) => C | Refusal,
): Judged<C & Place> {
  const objects: (C & Place)[] = [];
  const rejected: Rejection[] = [];
  elements.forEach((element, index) => {
    const unstorable = findUnstorable(element);
    const verdict = unstorable === undefined ? read(element) : unstorable;
    if ('error' in verdict) rejected.push(rejectionOf(verdict, { input_array: field, index }));
    else objects.push({ ...verdict, id: newId(), index });
  });
  return { objects, rejected };
}

/** As `judge`, where every element has to be an object. */
export function judgeObjects<C extends Content>(
  field: string,
  elements: Json[],
  read: (element: Record<string, Json>) => C | Refusal,
): Judged<C & Place> {
  return judge(field, elements, (element) => {
    const object = asRecord(element);
    return object ? read(object) : noObject(field);
  });
}

/** Refuses an element of an array that must hold objects. */
export function noObject(field: string): Refusal {
  return refuse('wrong_type', '', `each element of '${field}' must be an object`);
}

/** Refuses an element of an array that must hold strings. */
export function noText(field: string): Refusal {
  return refuse('wrong_type', '', `each element of '${field}' must be a non-empty string`);
}

/**
 * The plan of a request whose elements fail alone.
 *
 * @param fields the arrays that were judged
 * @param counts what the answer counts, by name
 * @throws {ApiError} with every refusal, if no element is valid
 */
export function planOf(
  { objects, rejected }: Judged,
  fields: string[],
  counts: Record<string, number>,
): Plan {
  requireValid({ objects, rejected }, fields);
  const body = { ...counts, message: 'success', ...(rejected.length > 0 && { errors: entriesOf(rejected) }) };
  return { objects, rejected, reply: { status: 201, body } };
}

/** @throws {ApiError} with every refusal, if no element is valid */
export function requireValid({ objects, rejected }: Judged, fields: string[]): void {
  if (objects.length > 0) return;
  throw new ApiError('nothingValid', { message: nothingValidIn(fields), rejected });
}

function nothingValidIn(fields: string[]): string {
  const names = fields.map((field) => `'${field}'`).join(', ');
  return `Valid data must be provided in the ${names} field${fields[1] ? 's' : ''}.`;
}

/** An array of a request. */
export const arrayOf = (items: Schema, description: string): Schema => ({
  type: 'array',
  minItems: 1,
  maxItems: MAX_ELEMENTS,
  items,
  description,
});

export const externalId = (description: string): Schema => ({
  type: ['string', 'integer'],
  description: `${description} At most 987 bytes.`,
});

export const aliasPart = (description: string): Schema => ({
  type: 'string',
  minLength: 1,
  description: `${description} At most 236 bytes.`,
});

export const email: Schema = { type: 'string', description: 'An email address in upper or lower case.' };

export const phone: Schema = { type: ['string', 'integer'], description: 'A phone number in E.164.' };

export const prioritization: Schema = {
  type: 'array',
  items: { enum: prioritizations },
  description:
    'Selects one of the users with the address. The values apply in order: `identified` keeps users with an external id, `unidentified` users without, `most_recently_updated` the user updated last, `least_recently_updated` the user updated longest ago. If more than one user is left, the element has no effect. Opposite values exclude each other. A repeated value counts once.',
};

export const counter = (description: string): Schema => ({ type: 'integer', minimum: 0, description });

const rejectionSchema = (arrays: string[]): Schema => ({
  type: 'object',
  required: ['type', 'input_array', 'index'],
  properties: {
    type: { type: 'string', description: 'The field and the rule.' },
    input_array: { enum: arrays },
    index: { type: 'integer', minimum: 0, description: 'Position in the array, from 0.' },
  },
});

/** The elements of these arrays that were refused. */
export const rejections = (arrays: string[], description: string): Schema => ({
  type: 'array',
  description,
  items: rejectionSchema(arrays),
});

/** An answer with `message: success` and what was counted or listed. */
export const replySchema = (
  properties: Record<string, Schema>,
  {
    required = Object.keys(properties),
    optional = {},
  }: { required?: string[]; optional?: Record<string, Schema> } = {},
): Schema => ({
  type: 'object',
  required: [...required, 'message'],
  properties: { ...properties, message: { const: 'success' }, ...optional },
});

/** The answer to a request whose elements fail alone. */
export const countedReply = (arrays: string[], counts: Record<string, Schema>, required?: string[]): Schema =>
  replySchema(counts, {
    ...(required && { required }),
    optional: { errors: rejections(arrays, 'The elements that were refused. Absent if there are none.') },
  });

/** The body of an error answer: a message, and the elements that are to blame, if it is elements. */
export const refusal = (arrays: string[]) => ({
  messages: { nothingValid: nothingValidIn(arrays) },
  errorBody: ({ message, errors }: RefusedRequest): Json =>
    errors === undefined ? { message } : { message, errors },
  errorSchema: {
    type: 'object',
    required: ['message'],
    properties: {
      message: { type: 'string' },
      errors: rejections(
        arrays,
        'The elements that caused the error. Absent if the request as a whole caused it.',
      ),
    },
  } satisfies Schema,
});

/** Names of the answer's two lists, and of the request's array. */
interface Lists {
  /** What took effect. */
  done: string;
  /** What did not, here or in the store. */
  errors: string;
  input_array: string;
}

/**
 * The plan of a request whose answer says which of its objects took effect. A caller who waits for that in
 * vain is told that all of them are accepted, with 202.
 *
 * @param show an object as the list of those that took effect has it
 */
export function settledPlan<T extends IdentityObject>(
  { objects, rejected }: Judged<T>,
  { done, errors, input_array }: Lists,
  show: (object: T) => Json,
): Plan {
  const bodyOf = (failures: ReadonlyMap<string, string>) => {
    const late: RejectionEntry[] = objects.flatMap(({ id, index }) => {
      const type = failures.get(id);
      return type === undefined ? [] : [{ type, input_array, index }];
    });
    return {
      [done]: objects.filter(({ id }) => !failures.has(id)).map(show),
      [errors]: [...entriesOf(rejected), ...late].sort((one, other) => one.index - other.index),
      message: 'success',
    };
  };
  return {
    objects,
    rejected,
    reply: { status: 202, body: { ...bodyOf(new Map()), pending: true } },
    replyOf: (failures): Reply => ({ status: 201, body: bodyOf(failures) }),
  };
}

/**
 * The answers that such a plan has.
 *
 * @param shown schema of what `show` makes
 */
export function settledReplies(
  { done, errors, input_array }: Lists,
  shown: Schema,
): QueuedOperation['replies'] {
  const lists = (took: string, refused: string) => ({
    [done]: { type: 'array', description: took, items: shown },
    [errors]: rejections([input_array], refused),
  });
  return {
    201: {
      description: 'The listed elements have taken effect.',
      schema: replySchema(
        lists('The elements that took effect.', 'The elements that did not take effect, with the reason.'),
      ),
    },
    202: {
      description:
        'The elements were not applied in time. They are stored on disk and will take effect unless a stored user conflicts with them.',
      schema: replySchema({
        ...lists('The elements that were accepted.', 'The elements that are not valid.'),
        pending: { const: true },
      }),
    },
  };
}
