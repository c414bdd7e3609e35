import { BadRequest } from '../../errors.ts';
import { isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';

/**
 * A whole number of a query string.
 *
 * @throws {BadRequest} when it is none, or outside of the bounds
 */
export function readWholeNumber(
  query: Record<string, Json>,
  name: string,
  { from, to, otherwise }: { from: number; to: number; otherwise: number },
): number {
  const value = query[name];
  if (!isGiven(value)) return otherwise;
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= from && number <= to) return number;
  const bounds = to === Number.MAX_SAFE_INTEGER ? `${from} or more` : `${from} to ${to}`;
  throw new BadRequest(`'${name}' is not valid: it must be a whole number, ${bounds}`);
}

/** Where a page begins. */
export const readOffset = (query: Record<string, Json>) =>
  readWholeNumber(query, 'offset', { from: 0, to: Number.MAX_SAFE_INTEGER, otherwise: 0 });
