import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { invalid, refuse } from '../profile/refusal.ts';
import { parseTime } from '../profile/time.ts';
import { asList } from '../profile/values.ts';
import type { Schema } from '../schemas/compile.ts';
import { arrayOf } from './identity/elements.ts';

/** Schema of an integer in a query string. */
export const count = (minimum: number, maximum: number | undefined, description: string): Schema => ({
  type: ['integer', 'string'],
  minimum,
  ...(maximum !== undefined && { maximum }),
  description,
  rule: 'it must be a whole number',
});

/**
 * Reads an integer of the query. Returns `otherwise` if it is missing or empty.
 *
 * @throws {BadRequest} if it is not an integer, or out of range
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
  throw new BadRequest(invalid(name, `it must be a whole number, ${bounds}`));
}

/** Reads the number of elements to skip. */
export const readOffset = (query: Record<string, Json>) =>
  readWholeNumber(query, 'offset', { from: 0, to: Number.MAX_SAFE_INTEGER, otherwise: 0 });

/** Schema of an array, or of its single element. */
export const listOrOne = (items: Schema, description: string): Schema => ({
  ...arrayOf(items, `${description} You can send a single value instead of an array.`),
  type: ['array', ...[items.type].flat()],
});

/**
 * Returns the elements of an array. Clients may send a single value instead of an array, and null or an empty text for
 * none.
 */
export function listOf(value: Json | undefined): Json[] {
  return asList(value).filter((element) => element !== null && element !== '');
}

/** Schema of a day in a query string. */
export function day(description: string): Schema {
  return {
    type: 'string',
    description: `A day as YYYY-MM-DD, or a time. ${description}`,
    rule: 'it must be a day, YYYY-MM-DD',
  };
}

const DAY_OR_TIME = /^\d{4}-\d\d-\d\d(?:[Tt ]|$)/;
/** A time zone whose + was decoded to a space, because the client did not encode it. */
const BARE_ZONE = /([Tt ]\d\d.*) (?=\d\d:?\d\d$)/;

/**
 * Parses a time, also if the + of its zone was not encoded. Returns epoch milliseconds, or undefined if it is not a
 * time.
 */
export const parseSentTime = (sent: string): number | undefined => parseTime(sent.replace(BARE_ZONE, '$1+'));

/** Restores each + of an email address that the client did not encode. Addresses contain no spaces. */
export const withPlus = (sent: string): string => sent.replaceAll(' ', '+');

/**
 * Reads `start_date` and `end_date` in epoch milliseconds.
 *
 * @param unless quoted name of the parameter that would replace the days, for the error. If undefined, the days are
 * optional
 * @throws {BadRequest} with the invalid parameter, or with all missing ones
 */
export function readDays(
  query: Record<string, Json>,
  unless: string | undefined,
): { start: number | undefined; end: number | undefined } {
  const start = readDay(query, 'start_date');
  const end = readDay(query, 'end_date');
  const missing = Object.entries({ start_date: start, end_date: end }).filter(([, day]) => day === undefined);
  if (unless !== undefined && missing.length > 0) {
    const names = missing.map(([name]) => `'${name}'`).join(' and ');
    throw new BadRequest(
      refuse(
        'required',
        missing[0]![0],
        `${names} ${missing.length === 1 ? 'is' : 'are'} required, or ${unless}`,
      ),
    );
  }
  if (start !== undefined && end !== undefined && start >= end) {
    throw new BadRequest(invalid('start_date', "it must be before 'end_date'"));
  }
  return { start, end };
}

/** Reads a day. Returns the epoch milliseconds of the sent time, or of midnight UTC. */
function readDay(query: Record<string, Json>, name: string): number | undefined {
  const value = query[name];
  if (!isGiven(value)) return undefined;
  const time = typeof value === 'string' && DAY_OR_TIME.test(value) ? parseSentTime(value) : undefined;
  if (time === undefined) throw new BadRequest(invalid(name, 'it must be a day, YYYY-MM-DD'));
  return time;
}
