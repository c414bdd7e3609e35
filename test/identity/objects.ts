import type { AcceptedObject, IdentityObject, UserSelector } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Identifier, Prioritization } from '../../src/profile/identifier.ts';

type Body<Kind extends IdentityObject['kind']> = Omit<
  Extract<IdentityObject, { kind: Kind }>,
  'kind' | 'id' | 'request' | 'index'
>;

/** Returns an identity operation as web passes it to a worker. */
export function identity<Kind extends IdentityObject['kind']>(kind: Kind, body: Body<Kind>): AcceptedObject {
  return { kind, id: newId(), index: 0, ...body } as unknown as AcceptedObject;
}

export const user = (external_id: string): Identifier => ({ external_id });

/** `label:name`. */
export function alias(text: string): { user_alias: { alias_label: string; alias_name: string } } {
  const [alias_label, alias_name] = text.split(':') as [string, string];
  return { user_alias: { alias_label, alias_name } };
}

export const by = (identifier: Identifier, ...prioritization: Prioritization[]): UserSelector => ({
  identifier,
  ...(('email' in identifier || 'phone' in identifier) && { prioritization }),
});

export const merge = (from: string, into: string): AcceptedObject =>
  identity('merge', { merge: by(user(from)), keep: by(user(into)) });

export const remove = (external_id: string): AcceptedObject =>
  identity('delete', { user: by(user(external_id)) });
