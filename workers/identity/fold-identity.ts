import type { IdentityObject } from '../../src/jobs/identity.ts';
import type { Changes } from '../track/fold.ts';
import type { LOOK_AGAIN } from '../track/profiles.ts';
import type { Work } from '../track/work.ts';
import { foldAliasNew, foldAliasUpdate } from './fold-aliases.ts';
import { foldDelete } from './fold-delete.ts';
import { foldRemove, foldRename } from './fold-external-ids.ts';
import { foldIdentify, foldMerge } from './fold-merge.ts';
import { TooManyCandidates } from './pick.ts';

/** A text: why the operation cannot be applied; undefined: it is folded, even if it does nothing. */
export type FoldedIdentity = string | undefined | typeof LOOK_AGAIN;

/** Plays one identity operation, in memory. What it touches is sealed for the rest of the round. */
export function foldIdentity(work: Work<IdentityObject>, changes: Changes): FoldedIdentity {
  try {
    return dispatch(work, changes);
  } catch (error) {
    if (error instanceof TooManyCandidates) return error.message;
    throw error;
  }
}

function dispatch(work: Work<IdentityObject>, changes: Changes): FoldedIdentity {
  const { object } = work;
  switch (object.kind) {
    case 'alias_new':
      return foldAliasNew(work, object, changes);
    case 'alias_update':
      return foldAliasUpdate(work, object, changes);
    case 'identify':
      return foldIdentify(work, object, changes);
    case 'merge':
      return foldMerge(work, object, changes);
    case 'delete':
      return foldDelete(work, object, changes);
    case 'external_id_rename':
      return foldRename(work, object, changes);
    case 'external_id_remove':
      return foldRemove(work, object, changes);
  }
}
