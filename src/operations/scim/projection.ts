import type { Json } from '../../profile/json.ts';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { USER } from './messages.ts';
import { invalid } from './scim-error.ts';

type Member = Record<string, Json>;

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
  const named = (attributes ?? excludedAttributes)?.split(',').map((path) => pathOf(path.trim()));
  if (named === undefined) return (resource) => resource;
  const keep = attributes !== undefined;
  return (resource) => project(resource, allAttributes, named, keep);
}

function pathOf(path: string): string[] {
  return withoutUrn(path, USER).toLowerCase().split('.');
}

/** @param named paths from here, in lower case */
function project(value: Member, among: Attribute[], named: string[][], keep: boolean): Member {
  const shown: Member = {};
  for (const [name, member] of Object.entries(value)) {
    const attribute = findAttribute(among, name);
    const here = named.filter(([first]) => first === name.toLowerCase());
    const whole = here.some((path) => path.length === 1);
    const below = here.map((path) => path.slice(1));
    if (attribute?.returned === 'always') shown[name] = member;
    else if (whole ? keep : here.length === 0 && !keep) shown[name] = member;
    else if (!whole && here.length > 0) {
      const within = (one: Json) => project(one as Member, attribute?.subAttributes ?? [], below, keep);
      if (isComplex(member)) shown[name] = within(member);
      else if (Array.isArray(member) && member.every(isComplex)) shown[name] = member.map(within);
      else if (!keep) shown[name] = member;
    }
  }
  return shown;
}

function isComplex(value: Json): value is Member {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
