import type { AcceptedEvent, AcceptedPurchase } from '../../src/jobs/envelope.ts';
import type { IdentityObject } from '../../src/jobs/identity.ts';
import { namedIdentifiers } from '../../src/jobs/named-identifiers.ts';
import { isAddress } from '../../src/profile/identifier.ts';
import type { EventRow } from '../../src/store/activity/record-events.ts';
import type { PurchaseRow } from '../../src/store/activity/record-purchases.ts';
import type { PushTokenRow } from '../../src/store/profiles/upsert-push-tokens.ts';
import type { Group } from '../../src/store/subscriptions/find-groups.ts';
import { type IdentityChanges, noIdentityChanges } from '../identity/changes.ts';
import { foldIdentity } from '../identity/fold-identity.ts';
import { type EmailChanges, noEmailChanges } from '../subscription/email-changes.ts';
import { foldSubscription } from '../subscription/fold-subscription.ts';
import { foldAttributes, importTokens } from './fold-attributes.ts';
import type { HeldProfile } from './held-profile.ts';
import { canMove, meetsSealed } from './move-states.ts';
import { LOOK_AGAIN, type Profiles } from './profiles.ts';
import type { States } from './states.ts';
import { isSubscription, isTrack, type Work } from './work.ts';

/** What a batch writes. A map is keyed by what may stand once in its statement. */
export interface Changes {
  profiles: Profiles;
  groups: Map<string, Group>;
  /** Tokens that belonged to someone before the batch. */
  ownedTokens: Set<string>;
  pushTokens: Map<string, PushTokenRow>;
  states: States;
  events: EventRow[];
  purchases: PurchaseRow[];
  emails: EmailChanges;
  identity: IdentityChanges;
  /** Objects that cannot be applied, with the reason. */
  refused: { work: Work; reason: string }[];
}

export function emptyChanges(
  profiles: Profiles,
  groups: Map<string, Group>,
  ownedTokens: Set<string>,
  states: States,
): Changes {
  return {
    profiles,
    groups,
    ownedTokens,
    pushTokens: new Map(),
    states,
    events: [],
    purchases: [],
    emails: noEmailChanges(),
    identity: noIdentityChanges(),
    refused: [],
  };
}

/**
 * Plays a batch through in order, in memory. Each object sees what the objects before it have done.
 *
 * @returns how many objects were folded: fewer than there are when the next one needs another look at the store
 */
export function fold(works: Work[], changes: Changes): number {
  for (let index = 0; index < works.length; index++) {
    const work = works[index]!;
    changes.states.request = work.requestId;
    if (!isTrack(work)) {
      const folded = isSubscription(work)
        ? foldSubscription(work, index, changes)
        : foldIdentity(work as Work<IdentityObject>, changes);
      if (folded === LOOK_AGAIN) return index;
      if (folded !== undefined && refuse(work, folded, changes)) return index + 1;
      continue;
    }
    const { object, workspaceId, ordinal } = work;
    if (object.kind === 'attributes' && !object.identifier) {
      // A token of somebody who is deleted belongs to nobody afterwards.
      if (changes.identity.deleted.length > 0) return index;
      const reason = importTokens(work, object, changes);
      if (reason) changes.refused.push({ work, reason });
      continue;
    }
    let profile = changes.profiles.find(workspaceId, object.identifier!);
    if (profile === LOOK_AGAIN) return index;
    if (!profile && object.create === false) continue;
    if (object.kind === 'attributes') {
      if (object.standard && meetsSealed(workspaceId, profile, object.standard, changes)) return index;
      // Reached by an address that it has got in this batch: what the store has of it was not asked for.
      if (profile && !profile.holds(object.change)) return index;
      if (profile && object.standard && !canMove(profile, object.standard, changes)) return index;
      const reason = foldAttributes(profile, work, object, changes);
      if (reason && refuse(work, reason, changes)) return index + 1;
      continue;
    }
    profile ??= changes.profiles.create(workspaceId, object.identifier);
    profile.touched = ordinal;
    if (object.kind === 'events') foldEvent(profile, object, changes, ordinal);
    else foldPurchase(profile, object, changes, ordinal);
  }
  return works.length;
}

/**
 * Notes an object that cannot be applied.
 *
 * @returns whether the round ends behind it: its dead letter says whom the object meant, and another user may have the
 * address that names it by the end of the round
 */
function refuse(work: Work, reason: string, changes: Changes): boolean {
  changes.refused.push({ work, reason });
  return namedIdentifiers(work.object).some(isAddress);
}

function foldEvent(profile: HeldProfile, event: AcceptedEvent, changes: Changes, ordinal: number): void {
  const { workspaceId: workspace_id, id: profile_id } = profile;
  const { id, name, time, app_id, properties } = event;
  changes.events.push({
    workspace_id,
    id,
    profile_id,
    name,
    time,
    ordinal,
    ...(app_id !== undefined && { app_id }),
    ...(properties && { properties }),
  });
}

function foldPurchase(
  profile: HeldProfile,
  purchase: AcceptedPurchase,
  changes: Changes,
  ordinal: number,
): void {
  const { workspaceId: workspace_id, id: profile_id } = profile;
  const { id, product_id, currency, price, quantity, time, app_id, properties } = purchase;
  changes.purchases.push({
    workspace_id,
    id,
    profile_id,
    product_id,
    currency,
    price,
    quantity,
    time,
    ordinal,
    ...(app_id !== undefined && { app_id }),
    ...(properties && { properties }),
  });
}
