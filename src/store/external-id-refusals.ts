import type { AcceptedObject, AcceptedRemove, AcceptedRename } from '../jobs/envelope.ts';
import { type Refusal, refuse } from '../profile/refusal.ts';
import { MAX_DEPRECATED } from './merges.ts';

/** Rules that only a worker can check, since they depend on the stored users. */
export const renameRefusals = {
  unknownUser: ({ current_external_id }: AcceptedRename) =>
    refuse('unknown_user', '', `no user goes by the current_external_id '${current_external_id}'`),
  inUse: (_rename: AcceptedRename) => refuse('in_use', '', 'new_external_id is already in use'),
  tooManyDeprecated: (_rename: AcceptedRename) =>
    refuse(
      'too_many',
      '',
      `the user has ${MAX_DEPRECATED} deprecated external ids, the most that one may have: remove some of them`,
    ),
};

export const removeRefusals = {
  unknownUser: ({ external_id }: AcceptedRemove) =>
    refuse('unknown_user', '', `no user has the external_id '${external_id}'`),
  notDeprecated: ({ external_id }: AcceptedRemove) =>
    refuse('conflict', '', `the external_id '${external_id}' is not deprecated: a user goes by it`),
};

/**
 * Returns the refusal of an object by a worker. The store only has its text, because earlier releases write
 * only the text.
 */
export function refusalByWorker(object: AcceptedObject, error: string): Refusal {
  return candidatesOf(object).find((one) => one.error === error) ?? refuse('other', '', error);
}

function candidatesOf(object: AcceptedObject): Refusal[] {
  if (object.kind === 'external_id_rename') return Object.values(renameRefusals).map((of) => of(object));
  if (object.kind === 'external_id_remove') return Object.values(removeRefusals).map((of) => of(object));
  return [];
}
