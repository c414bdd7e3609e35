import { setImmediate as letOthersRun } from 'node:timers/promises';
import {
  type AcceptedAttributes,
  type AcceptedEvent,
  type AcceptedPurchase,
  type IdentityObject,
  namedIdentifiers,
  type TrackObject,
} from '../../../src/jobs/envelope.ts';
import { type Identifier, isAddress } from '../../../src/profile/identifier.ts';
import { identifierKey, laneOf } from '../../../src/queue/lanes.ts';
import type { Changes } from '../changes.ts';
import type { LoadedProfile } from '../loaded-profile.ts';
import { tooManyHolders } from '../profiles.ts';
import { isActivity, isSubscription, isTrack, RELOAD, type WorkItem } from '../work-item.ts';
import { foldAttributes, importTokens } from './attributes.ts';
import { foldIdentity } from './identity.ts';
import { canMove, foldSubscription, meetsSealed } from './states.ts';

/** Milliseconds after which folding yields to other tasks of this process and checks the time limit of the round. */
const TURN_MS = 10;
/** Number of events and purchases per check of the time, since each takes very little. */
const LOOK_EACH = 16;

/**
 * Folds the objects of a round in memory, in order. Each object sees the changes of the objects before it.
 *
 * @param terms.poison reasons by object id for objects to refuse
 * @param terms.until time in `performance.now()` milliseconds at which the round ends before the next object
 * @returns how many objects were folded; fewer than given if the next one needs a reload or the time is over
 */
export async function fold(
  items: WorkItem[],
  changes: Changes,
  { poison, until }: { poison: ReadonlyMap<string, string>; until: number },
): Promise<number> {
  let turnEnds = performance.now() + TURN_MS;
  for (let index = 0; index < items.length; index++) {
    const item = items[index]!;
    if ((!isActivity(item) || index % LOOK_EACH === 0) && performance.now() > turnEnds) {
      if (performance.now() > until) return index;
      await letOthersRun();
      turnEnds = performance.now() + TURN_MS;
    }
    const why = poison.size === 0 ? undefined : poison.get(item.object.id);
    // The identifiers of a poison object were not looked up: an earlier identity operation may have sealed one.
    if (why !== undefined && changes.profiles.anySealed) return index;
    const folded = why === undefined ? foldOne(item, index, changes) : refuse(item, why, changes);
    if (folded === RELOAD) return index;
  }
  return items.length;
}

/** Result of an object: RELOAD if nothing was done; undefined if it was folded or refused, or has no effect. */
type Folded = typeof RELOAD | undefined;

function foldOne(item: WorkItem, index: number, changes: Changes): Folded {
  if (isTrack(item))
    return item.object.identifier
      ? foldTrack(item, item.object.identifier, changes)
      : foldImport(item, changes);
  const folded = isSubscription(item)
    ? foldSubscription(item, index, changes)
    : foldIdentity(item as WorkItem<IdentityObject>, changes);
  return typeof folded === 'string' ? refuse(item, folded, changes) : folded;
}

/** Folds an import of push tokens, which has no identifier. */
function foldImport(item: WorkItem<TrackObject>, changes: Changes): Folded {
  const { object, workspaceId } = item;
  // The tokens of a user that this round deletes become free when the round is written.
  if (object.kind !== 'attributes' || changes.identity.deleted.length > 0) return RELOAD;
  if (object.standard && meetsSealed({ workspaceId, profile: undefined }, object.standard, changes))
    return RELOAD;
  const reason = importTokens(item as WorkItem<AcceptedAttributes>, changes);
  if (reason === RELOAD) return RELOAD;
  if (reason) changes.refused.push({ item, reason });
  return undefined;
}

/** Folds attributes, an event or a purchase into the user that the identifier means now. */
function foldTrack(item: WorkItem<TrackObject>, identifier: Identifier, changes: Changes): Folded {
  const { object, workspaceId, ordinal } = item;
  const { profiles } = changes;
  if (isAddress(identifier) && profiles.isCrowded(workspaceId, identifier))
    return refuse(item, tooManyHolders(identifier), changes);
  const existing = profiles.find(workspaceId, identifier);
  if (existing === RELOAD) return RELOAD;
  if (!existing && object.create === false) return undefined;
  // A new user would get the pinned address.
  if (!existing && isAddress(identifier) && profiles.isPinned(workspaceId, identifier)) return RELOAD;
  if (existing && isNamedElsewhere(item, identifier, existing)) changes.namedElsewhere.push(item);
  if (object.kind === 'attributes') {
    if (object.standard && meetsSealed({ workspaceId, profile: existing }, object.standard, changes))
      return RELOAD;
    // It was reached by an address that it got in this round, so its stored data was not loaded.
    if (existing && !existing.isLockedFor(object.change)) return RELOAD;
    if (existing && object.standard && !canMove(existing, object.standard, changes)) return RELOAD;
    const reason = foldAttributes(existing, item as WorkItem<AcceptedAttributes>, changes);
    return typeof reason === 'string' ? refuse(item, reason, changes) : reason;
  }
  const profile = existing ?? profiles.create(workspaceId, identifier);
  profile.touch(ordinal);
  if (object.kind === 'events') foldEvent(profile, item as WorkItem<AcceptedEvent>, changes);
  else foldPurchase(profile, item as WorkItem<AcceptedPurchase>, changes);
  return undefined;
}

/** Returns whether the user's primary identifier (external id, then email, then phone) belongs to another lane. */
function isNamedElsewhere(
  { workspaceId, lanes = 1 }: WorkItem,
  identifier: Identifier,
  profile: LoadedProfile,
): boolean {
  if (lanes === 1) return false;
  const { externalId, email, phone, phoneValid } = profile;
  // Nearly all objects end here, without the cost of hashing identifiers to lanes.
  if ('external_id' in identifier && identifier.external_id === externalId) return false;
  const first =
    externalId !== null
      ? { external_id: externalId }
      : email !== null
        ? { email }
        : phone !== null && phoneValid
          ? { phone }
          : identifier;
  const laneOfName = (name: Identifier) => laneOf(workspaceId, identifierKey(name), lanes);
  return laneOfName(first) !== laneOfName(identifier);
}

/**
 * Records an object that cannot be applied. Its dead letter contains its user and is written with the round, so the
 * holders of an address that identifies the user must not change before. An address with too many holders identifies no
 * user, now or later.
 */
function refuse(item: WorkItem, reason: string, { refused, profiles }: Changes): undefined {
  refused.push({ item, reason });
  for (const identifier of namedIdentifiers(item.object))
    if (isAddress(identifier)) profiles.pin(item.workspaceId, identifier);
}

function foldEvent(
  profile: LoadedProfile,
  { object, ordinal, lane }: WorkItem<AcceptedEvent>,
  changes: Changes,
): void {
  const { workspaceId, id: profileId } = profile;
  const { id, name, time, app_id: appId, properties } = object;
  changes.events.push({ workspaceId, id, profileId, name, time, appId, properties, ordinal, lane });
}

function foldPurchase(
  profile: LoadedProfile,
  { object, ordinal, lane }: WorkItem<AcceptedPurchase>,
  changes: Changes,
): void {
  const { workspaceId, id: profileId } = profile;
  const { id, product_id: productId, currency, price, quantity, time, app_id: appId, properties } = object;
  changes.purchases.push({
    workspaceId,
    id,
    profileId,
    productId,
    currency,
    price,
    quantity,
    time,
    appId,
    properties,
    ordinal,
    lane,
  });
}
