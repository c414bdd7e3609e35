import type { DeprecatedExternalId } from '../../src/store/identity/deprecate-external-ids.ts';
import type { MergePair } from '../../src/store/identity/pair.ts';
import type { RenamedAlias } from '../../src/store/identity/rename-aliases.ts';
import type { NewExternalId } from '../../src/store/identity/set-external-ids.ts';
import type { Outcome } from '../../src/store/outcomes/record-outcomes.ts';
import type { HeldProfile } from '../track/held-profile.ts';
import type { Work } from '../track/work.ts';

/**
 * What the identity operations of one round do to the store. Each profile and each identifier stands in one of
 * them at most: the next operation on it begins a round of its own.
 */
export interface IdentityChanges {
  renamedAliases: RenamedAlias[];
  externalIds: NewExternalId[];
  deprecated: DeprecatedExternalId[];
  undeprecated: { workspace_id: string; external_id: string }[];
  merges: MergePair[];
  deleted: HeldProfile[];
  /** The deletes themselves, whether they found anybody or not. */
  deletes: Work[];
  outcomes: Outcome[];
}

export function noIdentityChanges(): IdentityChanges {
  return {
    renamedAliases: [],
    externalIds: [],
    deprecated: [],
    undeprecated: [],
    merges: [],
    deleted: [],
    deletes: [],
    outcomes: [],
  };
}
