import { ApiError } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable } from '../../profile/values.ts';

/** Elements of one page, as on the vendor's public pages. */
export const PAGE = 50;

/**
 * Returns the name after which the page of a query begins; empty for the first page.
 *
 * @param path of the list: a cursor of another list is not valid
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

/** Cuts a page off the elements that were found, of which there is one more than PAGE if another page follows. */
export function pageOf<T extends { name: string }>(
  path: string,
  found: T[],
): { page: T[]; headers: Record<string, string> } {
  const page = found.slice(0, PAGE);
  if (found.length <= PAGE) return { page, headers: {} };
  return { page, headers: { Link: `<${path}?cursor=${cursorOf(path, page.at(-1)!.name)}>; rel="next"` } };
}

const cursorOf = (path: string, name: string) => Buffer.from(`${path} ${name}`).toString('base64url');
