import type { Json } from '../../profile/json.ts';
import { invalid } from './scim-error.ts';

/** Most accounts of one answer; also how many come when the request does not say. */
export const MAX_COUNT = 200;
const DEFAULT_COUNT = 100;

export interface Page {
  skip: number;
  limit: number;
  /** Position of the account behind which it begins; absent without a cursor. */
  after?: number;
}

/**
 * Which page a request wants (RFC 7644 §3.4.2.4, RFC 9865): a start before the first is the first, a count
 * below zero is zero, and one above ours is ours.
 *
 * @throws {ScimError} 400
 */
export function readPage(query: Record<string, Json>): Page {
  const { startIndex, count, cursor } = query as Record<string, string | undefined>;
  const limit = Math.min(MAX_COUNT, Math.max(0, Number(count ?? DEFAULT_COUNT)));
  if (cursor === undefined) return { skip: Math.max(1, Number(startIndex ?? 1)) - 1, limit };
  if (startIndex !== undefined) throw invalid("'cursor' and 'startIndex' cannot be used together");
  if (!/^\d{0,15}$/.test(cursor))
    throw invalid("'cursor' is not valid: it is what a page before ended with", 'invalidCursor');
  return { skip: 0, limit, after: Number(cursor || 0) };
}

/** The member of an answer by which the next page is asked for; none at the end. */
export function nextCursor({ limit, after }: Page, page: { position: number }[]): { nextCursor?: string } {
  const last = page.at(-1);
  if (after === undefined || last === undefined || page.length < limit) return {};
  return { nextCursor: String(last.position) };
}
