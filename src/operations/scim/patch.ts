import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { combine, type Spend, without } from './combine.ts';
import { PATCH_OP, USER } from './messages.ts';
import { readPath, type Step } from './patch-path.ts';
import { invalid } from './scim-error.ts';
import { isMember, type Member, refuseRoles, spellResource } from './spell.ts';

const MAX_OPERATIONS = 100;

/**
 * Values that the operations of one request look at, together: an account of 500 workspaces with 50 permissions in each has
 * 25,000. A value is looked at once for each place that a path without a filter leads to.
 */
const MAX_VALUES = 200_000;

/** The body of a PATCH (RFC 7644 §3.5.2). */
export const patchSchema: Schema = {
  type: 'object',
  required: ['schemas', 'Operations'],
  properties: {
    schemas: {
      type: 'array',
      contains: { const: PATCH_OP },
      items: { type: 'string' },
      rule: `it must be an array of strings that holds ${PATCH_OP}`,
    },
    Operations: {
      type: 'array',
      minItems: 1,
      maxItems: MAX_OPERATIONS,
      rule: `it must be an array of 1 to ${MAX_OPERATIONS} operations`,
      items: {
        type: 'object',
        required: ['op'],
        rule: 'it must be an object',
        properties: {
          op: {
            type: 'string',
            pattern: '^(?:[Aa]dd|[Rr]emove|[Rr]eplace)$',
            description: 'What is done: add, remove or replace.',
            rule: 'it must be add, remove or replace',
          },
          path: {
            type: 'string',
            minLength: 1,
            maxLength: 500,
            description: 'What it is done to; without it, to the attributes that are the members of value.',
            rule: 'it must be a string of 1 to 500 characters',
          },
          value: { description: 'What is added, replaced or, from a list, removed.' },
        },
      },
    },
  },
};

/** An operation of the right form. */
export type GivenOperation = { op: string; path?: string; value?: Json };

/**
 * What the operations, one after the other, make of a resource. The result may break every rule of a resource:
 * it has to be checked like a body.
 *
 * @throws {ScimError} 400 by RFC 7644 §3.5.2: `invalidPath`, `noTarget`, `mutability`, `invalidValue`
 */
export function applyPatch(resource: Member, operations: GivenOperation[]): Member {
  const patched = structuredClone(resource);
  let left = MAX_VALUES;
  const spend: Spend = (values) => {
    left -= values;
    if (left < 0)
      throw invalid(`'Operations' are not valid: together they touch more than ${MAX_VALUES} values`);
  };
  for (const operation of operations) {
    for (const { steps, ...change } of spellOut(operation)) applyAt(patched, steps, { ...change, spend });
  }
  return spellResource(patched);
}

interface Change {
  op: 'add' | 'remove' | 'replace';
  steps: Step[];
  value?: Json;
}

/** One change for each attribute that the operation names. */
function spellOut({ op: given, path, value }: GivenOperation): Change[] {
  const op = given.toLowerCase() as Change['op'];
  if (op !== 'remove' && value === undefined)
    throw invalid(`'Operations' are not valid: ${op} needs a value`);
  if (path !== undefined) return [toChange(op, readPath(path), value)];
  if (op === 'remove') throw invalid("'Operations' are not valid: remove needs a path", 'noTarget');
  if (!isMember(value))
    throw invalid(`'Operations' are not valid: without a path, the value of ${op} is an object`);
  // What cannot be written is passed over here, as in the body of a create.
  return Object.entries(value).flatMap(([name, member]) => {
    const known = findByPath(name);
    if (!known || known.at(-1)!.mutability === 'readOnly') {
      refuseRoles(withoutUrn(name, USER), member);
      return [];
    }
    const steps = known.map((attribute) => ({ attribute }));
    return [toChange(op, steps, member)];
  });
}

/** Null is an attribute without a value (RFC 7643 §2.5): to set it is to remove what there is. */
function toChange(op: Change['op'], steps: Step[], value: Json | undefined): Change {
  if (value === null) return { op: 'remove', steps };
  return { op, steps, ...(value !== undefined && { value }) };
}

/** Goes to where a change is made, and makes it. `target` has no members but those of its attributes. */
function applyAt(
  target: Member,
  [step, ...rest]: Step[],
  change: Omit<Change, 'steps'> & { spend: Spend },
): void {
  const { op, value, spend } = change;
  const { attribute, chooses } = step!;
  const { name } = attribute;
  const spelled = (one: boolean) => spellValue(value!, attribute, one, spend);
  if (chooses) {
    const values = (target[name] as Json[] | undefined) ?? [];
    spend(values.length);
    const chosen = values.filter(chooses) as Member[];
    if (op === 'remove' && rest.length === 0) {
      target[name] = values.filter((one) => !chooses(one));
      return;
    }
    if (chosen.length === 0)
      throw invalid(`'path' is not valid: no value of '${name}' fits its filter`, 'noTarget');
    if (!attribute.subAttributes) {
      // A list of strings: each is the `value` that the filter speaks of.
      target[name] = values.map((one) => (chooses(one) ? value! : one));
      return;
    }
    for (const one of chosen) {
      if (rest.length > 0) applyAt(one, rest, change);
      else if (op !== 'remove')
        Object.assign(one, combine(op, one, spelled(true), { ...attribute, multiValued: false }, spend));
    }
  } else if (rest.length > 0) {
    if (op === 'remove' && target[name] === undefined) return;
    target[name] ??= attribute.multiValued ? [] : {};
    // Of a list, the change is made in each value.
    for (const one of [target[name]].flat() as Member[]) {
      spend(1);
      applyAt(one, rest, change);
    }
  } else if (op !== 'remove') {
    target[name] = combine(op, target[name], spelled(false), attribute, spend);
  } else if (attribute.multiValued) {
    const values = (target[name] as Json[] | undefined) ?? [];
    target[name] = value === undefined ? [] : without(values, [spelled(false)].flat(), spend);
  } else {
    // Of what is no list there is but one value, and the path has named it.
    delete target[name];
  }
}

/** `name.givenName` as well as `name`; nothing when there is no such attribute. */
function findByPath(path: string): Attribute[] | undefined {
  const found: Attribute[] = [];
  for (const name of withoutUrn(path, USER).split('.')) {
    const among = found.length === 0 ? allAttributes : found.at(-1)!.subAttributes;
    const attribute = findAttribute(among, name);
    if (!attribute) return undefined;
    found.push(attribute);
  }
  return found;
}

/**
 * A value with only the members that the attribute has, as they are spelled.
 *
 * @param one whether it is one value of a list
 */
function spellValue(value: Json, attribute: Attribute, one: boolean, spend: Spend): Json {
  spend(1);
  if (value === null && !one) return null;
  if (attribute.multiValued && !one) {
    const list = Array.isArray(value) ? value : [value];
    return list.map((each) => spellValue(each, attribute, true, spend));
  }
  if (!attribute.subAttributes) return value;
  if (!isMember(value))
    throw invalid(`'${attribute.name}' is not valid: ${JSON.stringify(value)} is no object`);
  const members = Object.entries(value).flatMap(([name, member]) => {
    const sub = findAttribute(attribute.subAttributes, name);
    if (!sub) refuseRoles(`${attribute.name}.${name}`, member);
    return sub ? [[sub.name, spellValue(member, sub, false, spend)] as const] : [];
  });
  return Object.fromEntries(members);
}
