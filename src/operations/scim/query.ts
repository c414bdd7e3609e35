import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import { type Attribute, allAttributes, findAttribute } from './attributes.ts';
import { invalid } from './messages.ts';
import { findByPath } from './patch.ts';
import type { Member } from './spell.ts';

const text = (description: string): Schema => ({
  type: 'string',
  description,
  rule: 'it must be given once',
});

const projection = {
  attributes: text('Names of attributes, separated by commas. The answer has only these.'),
  excludedAttributes: text('Names of attributes, separated by commas. The answer has all other attributes.'),
};

/** What every request that is answered with a resource takes (RFC 7644 §3.9). */
export const projectionQuery: Schema = { type: 'object', properties: projection };

const count = (description: string): Schema => ({
  type: 'string',
  pattern: '^-?\\d{1,9}$',
  description,
  rule: 'it must be a whole number',
});

/** Of a list (RFC 7644 §3.4.2; `cursor` is that of RFC 9865). */
export const listQuery: Schema = {
  type: 'object',
  properties: {
    filter: text('Filter, for example `userName eq "ada@example.com"`. By default all accounts.'),
    startIndex: count('Position of the first account, from 1.'),
    count: count('Maximum number of accounts.'),
    cursor: text(
      'Use it instead of `startIndex`: empty for the first page, then `nextCursor` of the previous page.',
    ),
    ...projection,
  },
};

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
    throw invalid("'cursor' is not valid: use 'nextCursor' from the previous response", 'invalidCursor');
  return { skip: 0, limit, after: Number(cursor || 0) };
}

/** The member of an answer by which the next page is asked for; none at the end. */
export function nextCursor(
  { limit, after }: Page,
  { page, isCut }: { page: { position: number }[]; isCut: boolean },
): { nextCursor?: string } {
  const last = page.at(-1);
  if (after === undefined || last === undefined || (page.length < limit && !isCut)) return {};
  return { nextCursor: String(last.position) };
}

/** Attributes that a request names: each as a whole, or those within it. */
type Named = Map<string, Named | 'whole'>;

/**
 * What a request wants to see of a resource (RFC 7644 §3.9): with `attributes` only those, with
 * `excludedAttributes` all but those, in any case what is always returned. Unknown names are passed over.
 *
 * @throws {ScimError} 400 when it has both
 */
export function readProjection(query: Record<string, Json>): (resource: Member) => Member {
  const { attributes, excludedAttributes } = query as Record<string, string | undefined>;
  if (attributes !== undefined && excludedAttributes !== undefined)
    throw invalid("'attributes' and 'excludedAttributes' cannot be used together");
  const list = attributes ?? excludedAttributes;
  if (list === undefined) return (resource) => resource;
  const named = readNamed(list);
  const project = createProjection({ keep: attributes !== undefined });
  return (resource) => project(resource, allAttributes, named);
}

/** However often an attribute is named, it is looked for once. */
function readNamed(list: string): Named {
  const named: Named = new Map();
  for (const path of list.split(',')) {
    const found = findByPath(path.trim()) ?? [];
    let here: Named = named;
    for (const [depth, { attribute }] of found.entries()) {
      const before = here.get(attribute.name);
      // The whole of an attribute takes in what is named within it.
      if (before === 'whole') break;
      const within: Named | 'whole' = depth === found.length - 1 ? 'whole' : (before ?? new Map());
      here.set(attribute.name, within);
      if (within === 'whole') break;
      here = within;
    }
  }
  return named;
}

/** @param keep whether what is named is shown, or all but that */
function createProjection({ keep }: { keep: boolean }) {
  return function project(value: Member, among: Attribute[], named: Named): Member {
    const shown: Member = {};
    for (const [name, member] of Object.entries(value)) {
      const attribute = findAttribute(among, name);
      const here = named.get(name);
      if (attribute?.returned === 'always') shown[name] = member;
      else if (here === undefined || here === 'whole') {
        if ((here === 'whole') === keep) shown[name] = member;
      } else {
        const within = (one: Json) => project(one as Member, attribute?.subAttributes ?? [], here);
        shown[name] = Array.isArray(member) ? member.map(within) : within(member);
      }
    }
    return shown;
  };
}
