import { filter, parse } from 'scim2-parse-filter';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { USER } from './messages.ts';
import { invalid } from './scim-error.ts';

/** A name and, of a list, a filter of its values. */
const SEGMENT = /^([\w$-]+)(?:\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\])?(?:\.(?=.)|$)/;

/** One step of a path. */
export interface Step {
  attribute: Attribute;
  /** Which values of a list it goes to; absent: the attribute as a whole. */
  chooses?: (value: unknown) => boolean;
}

/**
 * Reads a path of RFC 7644 §3.5.2: it leads to an attribute that there is and that may be changed. So no name
 * that JavaScript has on every object is followed.
 *
 * @throws {ScimError} 400 `invalidPath` or `mutability`
 */
export function readPath(path: string): Step[] {
  let rest = withoutUrn(path, USER);
  let among: Attribute[] | undefined = allAttributes;
  const steps: Step[] = [];
  while (rest !== '') {
    const [whole, name, inBrackets] = SEGMENT.exec(rest) ?? [];
    const attribute: Attribute | undefined = name === undefined ? undefined : findAttribute(among, name);
    if (!attribute) throw invalid(`'path' is not valid: there is no attribute '${path}'`, 'invalidPath');
    if (attribute.mutability === 'readOnly')
      throw invalid(`'path' is not valid: '${attribute.name}' cannot be changed`, 'mutability');
    steps.push({
      attribute,
      ...(inBrackets !== undefined && { chooses: readValueFilter(inBrackets, attribute, path) }),
    });
    among = attribute.subAttributes;
    rest = rest.slice(whole!.length);
  }
  if (steps.length === 0) throw invalid("'path' is not valid: it is empty", 'invalidPath');
  return steps;
}

function readValueFilter(text: string, attribute: Attribute, path: string): (value: unknown) => boolean {
  const wrong = (reason: string) => invalid(`'path' is not valid: '${path}' ${reason}`, 'invalidPath');
  if (!attribute.multiValued) throw wrong('filters what is no list');
  try {
    const compiled = filter(parse(text));
    // An earlier operation may have left values of any type, of which the library makes texts.
    const fits = (value: unknown) => {
      try {
        return compiled(value);
      } catch {
        return false;
      }
    };
    // What is in a list of strings is its `value` (RFC 7643 §2.4).
    return attribute.subAttributes ? fits : (value) => fits({ value });
  } catch {
    throw wrong('has a filter that cannot be parsed');
  }
}
