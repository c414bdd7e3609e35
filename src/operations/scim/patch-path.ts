import { parse } from 'scim2-parse-filter';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { USER } from './messages.ts';
import { invalid } from './scim-error.ts';

/** A name and, of a list, a filter of its values. */
const SEGMENT = /^([\w$-]+)(?:\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\])?(?:\.(?=.)|$)/;

export interface PatchPath {
  /** What the path leads to. */
  attribute: Attribute;
  /** The path as our attributes are spelled, without the URN. */
  spelled: string;
  /** Whether it chooses among the values of the attribute. */
  selects: boolean;
}

/**
 * Reads a path of RFC 7644 §3.5.2: it leads to an attribute that there is and that may be changed. So no name
 * that JavaScript has on every object reaches the library that applies it.
 *
 * @throws {ScimError} 400 `invalidPath` or `mutability`
 */
export function readPath(path: string): PatchPath {
  let rest = withoutUrn(path, USER);
  let among: Attribute[] | undefined = allAttributes;
  let attribute: Attribute | undefined;
  let selects = false;
  const spelled: string[] = [];
  while (rest !== '') {
    const [whole, name, filter] = SEGMENT.exec(rest) ?? [];
    attribute = name === undefined ? undefined : findAttribute(among, name);
    if (!attribute) throw invalid(`'path' is not valid: there is no attribute '${path}'`, 'invalidPath');
    if (attribute.mutability === 'readOnly')
      throw invalid(`'path' is not valid: '${attribute.name}' cannot be changed`, 'mutability');
    selects = filter !== undefined;
    if (filter !== undefined) requireFilter(filter, attribute, path);
    spelled.push(filter === undefined ? attribute.name : `${attribute.name}[${filter}]`);
    among = attribute.subAttributes;
    rest = rest.slice(whole!.length);
  }
  if (!attribute) throw invalid("'path' is not valid: it is empty", 'invalidPath');
  return { attribute, spelled: spelled.join('.'), selects };
}

function requireFilter(filter: string, attribute: Attribute, path: string): void {
  const wrong = (reason: string) => invalid(`'path' is not valid: '${path}' ${reason}`, 'invalidPath');
  if (!attribute.multiValued || !attribute.subAttributes) throw wrong('filters what is no list of objects');
  // The library finds the URN of a path by its last colon.
  if (/[:()[\]]/.test(filter)) throw wrong('has a colon, parenthesis or bracket in its filter: use an id');
  try {
    parse(filter);
  } catch {
    throw wrong('has a filter that cannot be parsed');
  }
}
