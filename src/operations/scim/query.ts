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

/** Query parameters of every request that returns a resource (RFC 7644 §3.9). */
export const projectionQuery: Schema = { type: 'object', properties: projection };

const count = (description: string): Schema => ({
  type: 'string',
  pattern: '^-?\\d{1,9}$',
  description,
  rule: 'it must be a whole number',
});

/** Query parameters of a list (RFC 7644 §3.4.2, with `cursor` of RFC 9865). */
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

/** Maximum number of accounts per page, and the number if the request has no `count`. */
export const MAX_COUNT = 200;
const DEFAULT_COUNT = 100;

interface Page {
  skip: number;
  limit: number;
  /** Position of the account after which the page begins. Absent without a cursor. */
  after?: number;
}

/**
 * Reads the requested page (RFC 7644 §3.4.2.4, RFC 9865). A `startIndex` below 1 means 1, a negative `count` means 0,
 * and a `count` above MAX_COUNT means MAX_COUNT.
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

/** Returns the member `nextCursor` for the next page, or an empty object on the last page. */
export function nextCursor(
  { limit, after }: Page,
  { page, isCut }: { page: { position: number }[]; isCut: boolean },
): { nextCursor?: string } {
  const last = page.at(-1);
  if (after === undefined || last === undefined || (page.length < limit && !isCut)) return {};
  return { nextCursor: String(last.position) };
}

/** The attributes that a request names, as a whole or with the named sub-attributes. */
type NamedAttributes = Map<string, NamedAttributes | 'whole'>;

/**
 * Returns a function that reduces a resource to the requested attributes (RFC 7644 §3.9). With `attributes` it keeps
 * only those, with `excludedAttributes` all others. Attributes with `returned: always` are kept. Unknown names are
 * ignored.
 *
 * @throws {ScimError} 400 if the query has both parameters
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

/** Reads the names into a tree, so that a repeated name costs no extra work. */
function readNamed(list: string): NamedAttributes {
  const named: NamedAttributes = new Map();
  for (const path of list.split(',')) {
    const steps = findByPath(path.trim()) ?? [];
    let here: NamedAttributes = named;
    for (const [depth, { attribute }] of steps.entries()) {
      const before = here.get(attribute.name);
      // The whole attribute was named before, which includes its sub-attributes.
      if (before === 'whole') break;
      const part: NamedAttributes | 'whole' = depth === steps.length - 1 ? 'whole' : (before ?? new Map());
      here.set(attribute.name, part);
      if (part === 'whole') break;
      here = part;
    }
  }
  return named;
}

/**
 * Creates the projection.
 * @param keep whether the named attributes are kept, or all others
 */
function createProjection({ keep }: { keep: boolean }) {
  return function project(value: Member, among: Attribute[], named: NamedAttributes): Member {
    const shown: Member = {};
    for (const [name, member] of Object.entries(value)) {
      const attribute = findAttribute(among, name);
      const here = named.get(name);
      if (attribute?.returned === 'always') shown[name] = member;
      else if (here === undefined || here === 'whole') {
        if ((here === 'whole') === keep) shown[name] = member;
      } else {
        const projectOne = (one: Json) => project(one as Member, attribute?.subAttributes ?? [], here);
        shown[name] = Array.isArray(member) ? member.map(projectOne) : projectOne(member);
      }
    }
    return shown;
  };
}
