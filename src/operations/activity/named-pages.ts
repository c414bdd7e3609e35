import { ApiError } from '../../errors.ts';
import { takePage } from '../../platform/paging.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable } from '../../profile/values.ts';

/** Number of elements per page, as documented by the vendor. */
export const PAGE = 50;

/**
 * Returns the name after which the requested page begins, or an empty text for the first page.
 *
 * @param path path of the list. A cursor of another list is invalid
 * @throws {ApiError} invalidCursor
 */
export function readCursor({ cursor }: Record<string, Json>, path: string): string {
  if (cursor === undefined) return '';
  const text = Buffer.from(cursor as string, 'base64url').toString();
  const name = text.slice(path.length + 1);
  if (name === '' || cursorOf(path, name) !== cursor || findUnstorable(name) !== undefined)
    throw new ApiError('invalidCursor');
  return name;
}

/** Cuts `items` to one page and links the next page. If there is a next page, `items` has PAGE + 1 elements. */
export function pageOf<T extends { name: string }>(
  path: string,
  items: T[],
): { page: T[]; headers: Record<string, string> } {
  const { rows: page, next } = takePage(items, PAGE, ({ name }) => cursorOf(path, name));
  return { page, headers: next === null ? {} : { Link: `<${path}?cursor=${next}>; rel="next"` } };
}

const cursorOf = (path: string, name: string) => Buffer.from(`${path} ${name}`).toString('base64url');
