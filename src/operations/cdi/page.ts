import { createHash } from 'node:crypto';
import { ApiError, errors } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import type { KeysetPage, Listed } from '../../store/keyset.ts';

/** The specification's. */
const PAGE_SIZE = 10;

/** A direction, the id that the page lies at, and the check. */
const CURSOR = /^(older|newer):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):[0-9a-f]{8}$/;

export const cursorQuery: Schema = {
  type: 'object',
  properties: {
    cursor: {
      type: 'string',
      description: 'Of another page, from a `Link` header; without one the first page.',
      refusal: { type: errors.invalidCursor.message },
    },
  },
};

/**
 * The page that a query asks for.
 *
 * @param list names the list: a cursor of another one is none
 * @throws {ApiError} invalidCursor
 */
export function readPage({ cursor }: Record<string, Json>, list: string): KeysetPage {
  if (cursor === undefined) return { direction: 'older', size: PAGE_SIZE };
  const text = Buffer.from(cursor as string, 'base64').toString('latin1');
  const [, direction, from] = CURSOR.exec(text) ?? [];
  if (!direction || !from || cursorOf(direction as KeysetPage['direction'], from, list) !== cursor)
    throw new ApiError('invalidCursor');
  return { direction: direction as KeysetPage['direction'], from, size: PAGE_SIZE };
}

/** The `Link` header of a page, unless it is the only one. `prev` has the newer rows. */
export function linkTo(
  path: string,
  list: string,
  { rows, newer, older }: Listed<{ id: string }>,
): Record<string, string> {
  const link = (direction: KeysetPage['direction'], row: { id: string } | undefined, rel: string) =>
    row ? [`<${path}?cursor=${cursorOf(direction, row.id, list)}>; rel="${rel}"`] : [];
  const links = [
    ...link('newer', newer ? rows[0] : undefined, 'prev'),
    ...link('older', older ? rows.at(-1) : undefined, 'next'),
  ];
  return links.length > 0 ? { Link: links.join(',') } : {};
}

/** Base64 of such a text has neither + nor /, which a URL would want written otherwise. */
function cursorOf(direction: KeysetPage['direction'], id: string, list: string): string {
  const check = createHash('sha256').update(`${list} ${direction} ${id}`).digest('hex').slice(0, 8);
  return Buffer.from(`${direction}:${id}:${check}`).toString('base64');
}
