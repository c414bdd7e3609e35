import type { RenamedAlias } from '../../src/store/aliases.ts';
import type { ClearedSpam, HardBounce } from '../../src/store/email-addresses.ts';
import type { EventRow } from '../../src/store/events.ts';
import type { DeprecatedExternalId, NewExternalId } from '../../src/store/external-ids.ts';
import type { MergePair } from '../../src/store/merges.ts';
import type { Outcome } from '../../src/store/outcomes.ts';
import type { PurchaseRow } from '../../src/store/purchases.ts';
import type { PushTokenRow } from '../../src/store/push-tokens.ts';
import type { Group } from '../../src/store/subscription-states.ts';
import type { LoadedProfile } from './loaded-profile.ts';
import type { Profiles } from './profiles.ts';
import type { States } from './states.ts';
import type { RELOAD, WorkItem } from './work-item.ts';

/** What a round does to email addresses besides their states. */
export interface EmailChanges {
  /** By address, in its workspace: what was said last. */
  bounces: Map<string, HardBounce>;
  /** Addresses whose holders lose the mark as spam before anything else of the round is written. */
  clearedSpam: ClearedSpam[];
  /** Addresses, each in its workspace, that too many have for their marks to be cleared by one object. */
  crowded: ReadonlySet<string>;
}

export function noEmailChanges(crowded: ReadonlySet<string>): EmailChanges {
  return { bounces: new Map(), clearedSpam: [], crowded };
}

/** What a round writes. A map is keyed by what may stand once in its statement. */
export interface Changes {
  profiles: Profiles;
  groups: Map<string, Group>;
  /** Tokens that belonged to someone before the round. */
  ownedTokens: Set<string>;
  pushTokens: Map<string, PushTokenRow>;
  states: States;
  events: EventRow[];
  purchases: PurchaseRow[];
  emails: EmailChanges;
  identity: IdentityChanges;
  /** Objects that cannot be applied, with the reason. */
  refused: { item: WorkItem; reason: string }[];
  /** Objects whose user goes by a name of another lane: nothing orders them with those that use it. */
  namedElsewhere: WorkItem[];
}

/** A text: why the operation cannot be applied; undefined: it is folded, even if it does nothing. */
export type FoldedIdentity = string | undefined | typeof RELOAD;

/**
 * What the identity operations of one round do to the store. Each profile and each identifier stands in one of
 * them at most: the next operation on it begins a round of its own.
 */
export interface IdentityChanges {
  renamedAliases: RenamedAlias[];
  externalIds: NewExternalId[];
  deprecated: DeprecatedExternalId[];
  undeprecated: { workspace_id: string; external_id: string; profile_id: string }[];
  merges: MergePair[];
  deleted: LoadedProfile[];
  /** The deletes themselves, whether they found anybody or not. */
  deletes: WorkItem[];
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

export function emptyChanges({
  crowdedEmails,
  ...loaded
}: Pick<Changes, 'profiles' | 'groups' | 'ownedTokens' | 'states'> & {
  crowdedEmails: ReadonlySet<string>;
}): Changes {
  return {
    ...loaded,
    pushTokens: new Map(),
    events: [],
    purchases: [],
    emails: noEmailChanges(crowdedEmails),
    identity: noIdentityChanges(),
    refused: [],
    namedElsewhere: [],
  };
}
