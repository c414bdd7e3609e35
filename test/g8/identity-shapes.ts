import { CROWDED, OVERCROWDED } from './grown.ts';
import { full, json, type Making, opposite, padding, range, type Shape } from './shape.ts';

/** Returns the worst known requests to the identity operations. */
export function identity({ bytes, grown, random }: Making): Record<string, Shape[]> {
  // Uses the last users, because other shapes need the first ones and this shape deletes users.
  const users = range(50).map(
    (index) => `heavy-${grown.heavy - 1 - Math.floor(random() * (grown.heavy / 3)) - (index % 3)}`,
  );
  const fill = (share: number) => padding(share - 300);
  const selector = (kind: string, value: string, index: number) =>
    `{"${kind}":"${value}","prioritization":${json(opposite[index % 2])}}`;
  const merges = (of: string, kind: string, value: string): Shape => ({
    of,
    body: `{"merge_updates":${full(50, bytes, (index, share) => `{"identifier_to_merge":${selector(kind, value, index)},"identifier_to_keep":${selector(kind, value, index + 1)}}${fill(share)}`)}}`,
  });
  const aliasOf = (index: number, name: string) => `"alias_label":"label${1 + index}","alias_name":"${name}"`;
  const elements = (field: string, make: (index: number) => string) =>
    `{"${field}":${full(50, bytes, (index, share) => make(index) + padding(share - make(index).length))}}`;
  return {
    'users.merge': [
      merges('full users by a crowded email', 'email', CROWDED.email),
      merges('full users by a crowded phone', 'phone', CROWDED.phone),
      merges('by an overcrowded email', 'email', OVERCROWDED.email),
      {
        of: 'of full users',
        body: elements(
          'merge_updates',
          (index) =>
            `{"identifier_to_merge":{"external_id":"${users[index]}"},"identifier_to_keep":{"external_id":"${users[(index + 1) % 50]}"}}`,
        ),
      },
    ],
    'users.delete': [
      { of: 'nobody', body: elements('external_ids', (index) => `"nobody-${index}-${'x'.repeat(900)}"`) },
      {
        of: 'full users',
        body: elements('external_ids', (index) => json(users[index])),
      },
      {
        of: 'full users of a crowded address',
        body: elements('email_addresses', (index) => selector('email', CROWDED.email, index)),
      },
    ],
    'users.alias.new': [
      {
        of: 'for full users',
        body: elements(
          'user_aliases',
          (index) =>
            `{"external_id":"heavy-${index % grown.heavy}","alias_label":"${random()}","alias_name":"${'n'.repeat(200)}"}`,
        ),
      },
      {
        of: 'many for one user',
        body: elements(
          'user_aliases',
          (index) => `{"external_id":"crowd-1","alias_label":"l${random()}${index}","alias_name":"n"}`,
        ),
      },
    ],
    'users.alias.update': [
      {
        of: 'of full users',
        body: elements(
          'alias_updates',
          (index) =>
            `{"alias_label":"label${index + 1}","old_alias_name":"name${index}","new_alias_name":"new${random()}"}`,
        ),
      },
    ],
    'users.identify': [
      {
        of: 'by a crowded email',
        body: elements(
          'emails_to_identify',
          (index) =>
            `{"external_id":"heavy-1","email":"${CROWDED.email}","prioritization":${json(opposite[index % 2])}}`,
        ),
      },
      {
        of: 'by aliases of full users',
        body: elements(
          'aliases_to_identify',
          (index) => `{"external_id":"heavy-${index}","user_alias":{${aliasOf(index, `name${index + 1}`)}}}`,
        ),
      },
    ],
    'users.external_ids.rename': [
      {
        of: 'of full users',
        body: elements(
          'external_id_renames',
          (index) => `{"current_external_id":"${users[index]}","new_external_id":"renamed-${random()}"}`,
        ),
      },
    ],
    'users.external_ids.remove': [
      { of: 'of full users', body: elements('external_ids', (index) => `"heavy-${index}"`) },
    ],
  };
}
