import { type ScimPatchOperation, type ScimResource, scimPatch } from 'scim-patch';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import { type Attribute, allAttributes, findAttribute, withoutUrn } from './attributes.ts';
import { PATCH_OP, USER } from './messages.ts';
import { readPath } from './patch-path.ts';
import { invalid, ScimError, type ScimType } from './scim-error.ts';

type Member = Record<string, Json>;

const MAX_OPERATIONS = 100;

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
  const copy = structuredClone(resource) as Member & ScimResource;
  return operations.flatMap(spellOut).reduce((patched, operation) => {
    try {
      return scimPatch(patched, [operation]);
    } catch (error) {
      const { scimCode, message } = error as { scimCode?: ScimType; message: string };
      throw scimCode ? invalid(message, scimCode) : invalid(`the operation cannot be applied: ${message}`);
    }
  }, copy) as unknown as Member;
}

/** One operation for each attribute that it changes, with paths and members as our attributes are spelled. */
function spellOut({ op: given, path, value }: GivenOperation): ScimPatchOperation[] {
  const op = given.toLowerCase() as 'add' | 'remove' | 'replace';
  if (op !== 'remove' && value === undefined)
    throw invalid(`'Operations' are not valid: ${op} needs a value`, 'invalidValue');
  if (path === undefined) {
    if (op === 'remove')
      throw new ScimError('scimInvalid', 'noTarget', "'Operations' are not valid: remove needs a path");
    if (!isMember(value))
      throw invalid(`'Operations' are not valid: without a path, the value of ${op} is an object`);
    // What cannot be written is passed over here, as in the body of a create.
    return Object.entries(value).flatMap(([name, member]) => {
      const known = findByPath(name);
      return known && known.at(-1)!.mutability !== 'readOnly'
        ? spellOut({ op, path: known.map((one) => one.name).join('.'), value: member })
        : [];
    });
  }
  const { attribute, spelled, selects } = readPath(path);
  if (op === 'remove') {
    return [
      { op, path: spelled, ...(value !== undefined && { value: spellValue(value, attribute, selects) }) },
    ];
  }
  return [{ op, path: spelled, value: spellValue(value!, attribute, selects) }];
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
 * A value with only the members that the attribute has, as they are spelled: the library would take a member's
 * name for a path.
 *
 * @param selects whether the path chooses among the values, so that this is one of them
 */
function spellValue(value: Json, attribute: Attribute, selects: boolean): Json {
  if (attribute.multiValued && !selects) {
    const list = Array.isArray(value) ? value : [value];
    return list.map((one) => spellValue(one, attribute, true));
  }
  if (!attribute.subAttributes) return value;
  if (!isMember(value))
    throw invalid(`'${attribute.name}' is not valid: ${JSON.stringify(value)} is no object`);
  const members = Object.entries(value).flatMap(([name, member]) => {
    const sub = findAttribute(attribute.subAttributes, name);
    return sub ? [[sub.name, spellValue(member, sub, false)] as const] : [];
  });
  return Object.fromEntries(members);
}

function isMember(value: Json | undefined): value is Member {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
