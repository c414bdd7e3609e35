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

/** Maximum number of elements in each array of an identity or subscription request. */
export const MAX_ELEMENTS = 50;

/** An object that an element of a request is converted to. */
type Element = IdentityObject | SubscriptionObject;

/** The valid and the refused elements of a request's arrays, in their order. */
export interface Validated<T extends ObjectPosition = Element> {
  objects: T[];
  rejected: Rejection[];
}

/** An object without its id and its position in the request. */
type Content = WithoutPosition<Element>;
type WithoutPosition<T> = T extends unknown ? Omit<T, keyof ObjectPosition> : never;
type ObjectPosition = Pick<IdentityObject, 'id' | 'index'>;

/** Form of an array of a request. */
export interface ArrayForm {
  /** Type of the elements. A single value of this type is accepted as an array of one element. */
  of: 'objects' | 'strings';
  /** The error for more than 50 elements. */
  tooMany: ErrorName;
}

/**
 * Returns the elements of an array of the request, or undefined if the request does not have it. Clients may send a
 * single element instead of an array, and null for no array.
 *
 * @throws {BadRequest|ApiError} if the value is not an array, or has more than 50 elements
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

/** Creates the error for too many elements, with the count and the limit. */
export function tooManyElements(
  entry: ErrorName,
  { field, count }: { field: string; count: number },
): ApiError {
  return new ApiError(entry, { fact: `'${field}' has ${count} elements; the limit is ${MAX_ELEMENTS}.` });
}

/**
 * Returns the elements of a required array.
 * @throws {BadRequest|ApiError} if the array is missing, empty, of the wrong type, or has more than 50 elements
 */
export function requiredElements(body: Record<string, Json>, field: string, form: ArrayForm): Json[] {
  const elements = elementsOf(body, field, form);
  if (elements === undefined) throw new BadRequest(required(field));
  return requireSome(field, elements);
}

/**
 * Returns the elements.
 * @throws {BadRequest} if there are none
 */
export function requireSome(field: string, elements: Json[]): Json[] {
  if (elements.length === 0) throw new BadRequest(invalid(field, 'it must not be empty'));
  return elements;
}

/** Validates each element of an array on its own: first that it can be stored, then with `read`. */
export function validateElements<C extends Content>(
  field: string,
  elements: Json[],
  read: (element: Json) => C | Refusal,
): Validated<C & ObjectPosition> {
  const objects: (C & ObjectPosition)[] = [];
  const rejected: Rejection[] = [];
  elements.forEach((element, index) => {
    const unstorable = findUnstorable(element);
    const verdict = unstorable === undefined ? read(element) : unstorable;
    if ('error' in verdict) rejected.push(rejectionOf(verdict, { input_array: field, index }));
    else objects.push({ ...verdict, id: newId(), index });
  });
  return { objects, rejected };
}

/** Validates each element of an array on its own. Each must be an object. */
export function validateObjects<C extends Content>(
  field: string,
  elements: Json[],
  read: (element: Record<string, Json>) => C | Refusal,
): Validated<C & ObjectPosition> {
  return validateElements(field, elements, (element) => {
    const object = asRecord(element);
    return object ? read(object) : notAnObject(field);
  });
}

/** Refuses an element that is not an object. */
export function notAnObject(field: string): Refusal {
  return refuse('wrong_type', '', `each element of '${field}' must be an object`);
}

/** Refuses an element that is not a non-empty string. */
export function notAString(field: string): Refusal {
  return refuse('wrong_type', '', `each element of '${field}' must be a non-empty string`);
}

/**
 * Plans a request whose elements can fail individually.
 *
 * @param fields names of the validated arrays
 * @param counts figures of the answer, by name
 * @throws {ApiError} with every refusal, if no element is valid
 */
export function planOf(
  { objects, rejected }: Validated,
  fields: string[],
  counts: Record<string, number>,
): Plan {
  requireValid({ objects, rejected }, fields);
  const body = { ...counts, message: 'success', ...(rejected.length > 0 && { errors: entriesOf(rejected) }) };
  return { objects, rejected, reply: { status: 201, body } };
}

/**
 * Requires at least one valid element.
 * @throws {ApiError} with every refusal, if no element is valid
 */
export function requireValid({ objects, rejected }: Validated, fields: string[]): void {
  if (objects.length > 0) return;
  throw new ApiError('nothingValid', { message: nothingValidIn(fields), rejected });
}

function nothingValidIn(fields: string[]): string {
  const names = fields.map((field) => `'${field}'`).join(', ');
  return `Valid data must be provided in the ${names} field${fields[1] ? 's' : ''}.`;
}

/** Schema of an array in a request. */
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

/** Schema of the refused elements of these arrays. */
const rejections = (arrays: string[], description: string): Schema => ({
  type: 'array',
  description,
  items: rejectionSchema(arrays),
});

/** Schema of an answer with `message: success` and further members. */
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

/** Schema of the answer to a request whose elements can fail individually. */
export const countedReply = (arrays: string[], counts: Record<string, Schema>, required?: string[]): Schema =>
  replySchema(counts, {
    ...(required && { required }),
    optional: { errors: rejections(arrays, 'The elements that were refused. Absent if there are none.') },
  });

/** The error answers of an operation with arrays: a message, and the refused elements if elements caused the error. */
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

/** Names of the answer's two lists and of the request's array. */
interface Lists {
  /** The elements that took effect. */
  done: string;
  /** The elements that were refused, during validation or by the workers. */
  errors: string;
  input_array: string;
}

/**
 * Plans a request whose answer lists the elements that took effect. If the outcome is not known in time, the answer has
 * status 202 and lists all valid elements as accepted.
 *
 * @param show converts an object to its entry in the list of elements that took effect
 */
export function outcomePlan<T extends IdentityObject>(
  { objects, rejected }: Validated<T>,
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
 * Returns the answers of an `outcomePlan`.
 *
 * @param shown schema of the result of `show`
 */
export function outcomeReplies(
  { done, errors, input_array }: Lists,
  shown: Schema,
): QueuedOperation['replies'] {
  const lists = (effective: string, refused: string) => ({
    [done]: { type: 'array', description: effective, items: shown },
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
