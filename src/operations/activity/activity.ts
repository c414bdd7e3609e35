import { BadRequest } from '../../errors.ts';
import { isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { invalid, required } from '../../profile/refusal.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import { listNames, type SeriesPage, type SeriesPoint } from '../../store/activity-series.ts';
import type { DirectOperation } from '../operation.ts';
import { count, parseSentTime, readWholeNumber } from '../query-parameters.ts';

/** Maximum number of points of a series. */
const MAX_LENGTH = 100;

const MILLISECONDS = { day: 86_400_000, hour: 3_600_000 } as const;

/** The range of `ending_at`. Postgres must be able to parse times 100 days before it and one day after it. */
const EARLIEST_END = Date.UTC(1970, 0);
const LATEST_END = Date.UTC(9999, 0);

const text = (description: string): Schema => ({ type: 'string', description, rule: 'it must be a string' });

/** The query parameters that select the time range and the app of a series. */
export const seriesParameters: Record<string, Schema> = {
  length: count(1, MAX_LENGTH, 'Number of days or hours in the series. The last one contains `ending_at`.'),
  unit: {
    enum: ['day', 'hour'],
    default: 'day',
    description: 'Interval between two points. Days and hours are in UTC.',
    rule: "it must be 'day' or 'hour'",
  },
  ending_at: {
    type: 'string',
    description: 'End of the series in ISO 8601, by default the time of the request.',
    rule: 'it must be a time in ISO 8601, of the years 1970 to 9998',
  },
  app_id: text('Only events or purchases of this app, by default of all apps.'),
};

/** Schema of an answer with a series. `measure` is the name of its figure. */
export const seriesReply = (
  measure: string,
  description: string,
  more: Record<string, Schema> = {},
): Schema => ({
  type: 'object',
  required: ['data', 'message', ...Object.keys(more)],
  properties: {
    data: {
      type: 'array',
      maxItems: MAX_LENGTH,
      items: {
        type: 'object',
        required: ['time', measure],
        properties: {
          time: {
            type: 'string',
            description: 'A day such as `2026-01-31`, or an hour such as `2026-01-31T12:00:00Z`.',
          },
          [measure]: { type: 'number', description },
        },
      },
    },
    ...more,
    message: { const: 'success' },
  },
});

/** The time range of a series in epoch milliseconds, with its unit and app. */
type SeriesRange = Pick<SeriesPage, 'unit' | 'from' | 'to' | 'appId'>;

/**
 * Reads the time range of a series from the query.
 *
 * @param now epoch milliseconds
 * @throws {BadRequest} with the parameter and the rule
 */
export function readSeriesRange(query: Record<string, Json>, now: number): SeriesRange {
  if (!isGiven(query.length)) throw new BadRequest(required('length'));
  const length = readWholeNumber(query, 'length', { from: 1, to: MAX_LENGTH, otherwise: 1 });
  const unit = query.unit === 'hour' ? 'hour' : 'day';
  const step = MILLISECONDS[unit];
  const last = Math.floor(readEnd(query.ending_at, now) / step) * step;
  const appId = readName(query, 'app_id');
  return { unit, from: last - (length - 1) * step, to: last + step, appId };
}

function readEnd(sent: Json | undefined, now: number): number {
  if (!isGiven(sent)) return now;
  const time = typeof sent === 'string' ? parseSentTime(sent) : undefined;
  if (time !== undefined && time >= EARLIEST_END && time < LATEST_END) return time;
  throw new BadRequest(invalid('ending_at', 'it must be a time in ISO 8601, of the years 1970 to 9998'));
}

/**
 * Reads the name of an event, a product or an app. Returns undefined if the parameter is missing or empty.
 *
 * @throws {BadRequest} if the text cannot be stored, so that no event, product or app has this name
 */
export function readName(query: Record<string, Json>, parameter: string): string | undefined {
  const sent = query[parameter];
  if (!isGiven(sent) || sent === '') return undefined;
  const fault = typeof sent === 'string' ? findUnstorable(sent)?.error : 'it must be a string';
  if (fault !== undefined) throw new BadRequest(invalid(parameter, fault));
  return sent as string;
}

/** Returns a point for each unit, oldest first, with 0 for units without data. */
export function toData(
  { unit, from, to }: SeriesRange,
  points: readonly SeriesPoint[],
  [name, measure]: [name: string, measure: 'count' | 'revenue'],
): Json[] {
  const step = MILLISECONDS[unit];
  const sums = new Map<number, number>();
  for (const point of points) sums.set(point.time, (sums.get(point.time) ?? 0) + point[measure]);
  return Array.from({ length: (to - from) / step }, (_, index) => {
    const time = from + index * step;
    const iso = new Date(time).toISOString();
    return { time: unit === 'day' ? iso.slice(0, 10) : `${iso.slice(0, 19)}Z`, [name]: sums.get(time) ?? 0 };
  });
}

/** Members that the operations for series of purchases share. */
export const purchaseSeries = {
  kind: 'direct',
  method: 'GET',
  bucket: 'events.list',
  isLarge: true,
  query: {
    type: 'object',
    required: ['length'],
    properties: { ...seriesParameters, product: text('Id of a product, by default all products.') },
  },
} as const satisfies Partial<DirectOperation>;

/**
 * Reads the time range and the product of a series of purchases from the query.
 *
 * @throws {BadRequest} with the parameter and the rule
 */
export function readPurchases(query: Record<string, Json>, now: number): SeriesPage {
  const product = readName(query, 'product');
  const range = readSeriesRange(query, now);
  return { kind: product === undefined ? 'purchases' : 'product', name: product ?? '', ...range };
}

/** Number of names per page. */
const PAGE = 250;

/** Highest page number. Postgres looks up each name of the earlier pages, so late pages are expensive. */
const LAST_PAGE = 80;

/** Creates the operation that lists the names of events or products. */
export function listing(
  member: 'events' | 'products',
  given: Pick<DirectOperation, 'id' | 'path' | 'permission' | 'summary' | 'description'> & {
    example: string;
  },
): DirectOperation {
  const { example, ...described } = given;
  const kind = member === 'events' ? 'event' : 'product';
  const names: Schema = { type: 'array', maxItems: PAGE, items: { type: 'string' } };
  return {
    ...described,
    kind: 'direct',
    method: 'GET',
    bucket: 'events.list',
    isLarge: true,
    query: {
      type: 'object',
      properties: { page: count(0, LAST_PAGE, 'Number of the page, from 0 (default).') },
    },
    replies: {
      200: {
        description: `At most ${PAGE} names, in alphabetical order.`,
        schema: {
          type: 'object',
          required: [member, 'message'],
          properties: { [member]: names, message: { const: 'success' } },
        },
      },
    },
    example: { query: { page: '0' }, reply: { [member]: [example], message: 'success' } },

    async handle({ workspaceId }, { query }, { database }) {
      const page = readWholeNumber(query, 'page', { from: 0, to: LAST_PAGE, otherwise: 0 });
      const wanted = { kind, limit: PAGE, offset: page * PAGE, after: '' } as const;
      const pageNames = await listNames(database.pool, workspaceId, wanted);
      return { status: 200, body: { [member]: pageNames, message: 'success' } };
    },
  };
}
