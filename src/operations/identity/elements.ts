import { ApiError, BadRequest, type ErrorName, type Rejection } from '../../errors.ts';
import { newId } from '../../ids.ts';
import type { IdentityObject } from '../../jobs/identity.ts';
import type { SubscriptionObject } from '../../jobs/subscription.ts';
import type { Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/record.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Plan } from '../operation.ts';

/** Elements of each array of an identity or subscription request. */
export const MAX_ELEMENTS = 50;

/** Why something cannot be applied: the field and the rule. */
export type Refusal = { error: string };

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

/**
 * The elements of one of a request's arrays; undefined when the request does not have it. Clients send one
 * element where an array is meant, and null for none.
 *
 * @param of what the elements are; a value that could not be one is no array of one
 * @param tooMany the error that more than 50 elements end with
 * @throws {BadRequest|ApiError} when it is no array, or has more than 50 elements
 */
export function elementsOf(
  body: Record<string, Json>,
  field: string,
  of: 'objects' | 'strings',
  tooMany: ErrorName,
): Json[] | undefined {
  const value = body[field];
  if (value === undefined || value === null) return undefined;
  if (Array.isArray(value)) {
    if (value.length > MAX_ELEMENTS) throw new ApiError(tooMany);
    return value;
  }
  const isElement = of === 'objects' ? isRecord(value) : ['string', 'number'].includes(typeof value);
  if (!isElement) throw new BadRequest(`'${field}' is not valid: it must be an array of ${of}`);
  return [value];
}

/**
 * As `elementsOf`, for an array that a request must have and that must not be empty.
 * @throws {BadRequest|ApiError} when it is missing, empty, no array, or has more than 50 elements
 */
export function requiredElements(...asked: Parameters<typeof elementsOf>): Json[] {
  const [, field] = asked;
  const elements = elementsOf(...asked);
  if (elements === undefined) throw new BadRequest(`'${field}' is required`);
  return requireSome(field, elements);
}

/** @throws {BadRequest} when there is no element */
export function requireSome(field: string, elements: Json[]): Json[] {
  if (elements.length === 0) throw new BadRequest(`'${field}' is not valid: it must not be empty`);
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
    const verdict = unstorable === undefined ? read(element) : { error: unstorable };
    if ('error' in verdict) rejected.push({ type: verdict.error, input_array: field, index });
    else objects.push({ ...verdict, id: newId(), request: 0, index });
  });
  return { objects, rejected };
}

/** As `judge`, where every element has to be an object. */
export function judgeObjects<C extends Content>(
  field: string,
  elements: Json[],
  read: (element: Record<string, Json>) => C | Refusal,
): Judged<C & Place> {
  return judge(field, elements, (element) =>
    isRecord(element) ? read(element) : { error: `each element of '${field}' must be an object` },
  );
}

/**
 * The plan of a request whose elements fail alone.
 *
 * @param fields the arrays that were judged
 * @param counts what the answer counts, by name
 * @throws {BadRequest} with every refusal, when no element is valid
 */
export function planOf(
  { objects, rejected }: Judged,
  fields: string[],
  counts: Record<string, number>,
): Plan {
  requireValid({ objects, rejected }, fields);
  const body = { ...counts, message: 'success', ...(rejected.length > 0 && { errors: rejected }) };
  return { objects, rejected: rejected.length, reply: { status: 201, body } };
}

/** @throws {BadRequest} with every refusal, when no element is valid */
export function requireValid({ objects, rejected }: Judged, fields: string[]): void {
  if (objects.length > 0) return;
  const names = fields.map((field) => `'${field}'`).join(', ');
  throw new BadRequest(`Valid data must be provided in the ${names} field${fields[1] ? 's' : ''}.`, rejected);
}
