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

/** Milliseconds after which whatever else waits in this process has its turn, and after which the time is looked at. */
const TURN_MS = 10;
/** Events and purchases take so little that the time is looked at once for so many. */
const LOOK_EACH = 16;

/**
 * Plays a round through in order, in memory. Each object sees what the objects before it have done.
 *
 * @param terms.poison objects that are refused at their places, by their ids, and why
 * @param terms.until of `performance.now()`; when it is over, the round ends with the object in hand
 * @returns how many objects were folded: fewer than there are when the next one needs a reload, or the
 * time is over
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
    // The names of a poison object were not looked up: an identity object before it may have sealed one.
    if (why !== undefined && changes.profiles.anySealed) return index;
    const folded = why === undefined ? foldOne(item, index, changes) : refuse(item, why, changes);
    if (folded === RELOAD) return index;
  }
  return items.length;
}

/** How an object ended: it took effect, or is refused, or has no effect; or it needs a reload, and nothing was done. */
type Folded = typeof RELOAD | undefined;

function foldOne(item: WorkItem, place: number, changes: Changes): Folded {
  if (isTrack(item))
    return item.object.identifier
      ? foldTrack(item, item.object.identifier, changes)
      : foldImport(item, changes);
  const folded = isSubscription(item)
    ? foldSubscription(item, place, changes)
    : foldIdentity(item as WorkItem<IdentityObject>, changes);
  return typeof folded === 'string' ? refuse(item, folded, changes) : folded;
}

/** An import of push tokens, which names nobody. */
function foldImport(item: WorkItem<TrackObject>, changes: Changes): Folded {
  const { object, workspaceId } = item;
  // A token of somebody who is deleted belongs to nobody afterwards.
  if (object.kind !== 'attributes' || changes.identity.deleted.length > 0) return RELOAD;
  if (object.standard && meetsSealed({ workspaceId, profile: undefined }, object.standard, changes))
    return RELOAD;
  const reason = importTokens(item as WorkItem<AcceptedAttributes>, changes);
  if (reason === RELOAD) return RELOAD;
  if (reason) changes.refused.push({ item, reason });
  return undefined;
}

/** Attributes, an event or a purchase of the user whom the identifier means by now. */
function foldTrack(item: WorkItem<TrackObject>, identifier: Identifier, changes: Changes): Folded {
  const { object, workspaceId, ordinal } = item;
  const { profiles } = changes;
  if (isAddress(identifier) && profiles.isCrowded(workspaceId, identifier))
    return refuse(item, tooManyHolders(identifier), changes);
  const found = profiles.find(workspaceId, identifier);
  if (found === RELOAD) return RELOAD;
  if (!found && object.create === false) return undefined;
  // Who is made here gets the address.
  if (!found && isAddress(identifier) && profiles.isPinned(workspaceId, identifier)) return RELOAD;
  if (found && isNamedElsewhere(item, identifier, found)) changes.namedElsewhere.push(item);
  if (object.kind === 'attributes') {
    if (object.standard && meetsSealed({ workspaceId, profile: found }, object.standard, changes))
      return RELOAD;
    // Reached by an address that it has got in this round: what the store has of it was not asked for.
    if (found && !found.isLockedFor(object.change)) return RELOAD;
    if (found && object.standard && !canMove(found, object.standard, changes)) return RELOAD;
    const reason = foldAttributes(found, item as WorkItem<AcceptedAttributes>, changes);
    return typeof reason === 'string' ? refuse(item, reason, changes) : reason;
  }
  const profile = found ?? profiles.create(workspaceId, identifier);
  profile.touch(ordinal);
  if (object.kind === 'events') foldEvent(profile, item as WorkItem<AcceptedEvent>, changes);
  else foldPurchase(profile, item as WorkItem<AcceptedPurchase>, changes);
  return undefined;
}

/** Whether another lane is that of the name by which the user goes first: external id, email address, phone number. */
function isNamedElsewhere(
  { workspaceId, lanes = 1 }: WorkItem,
  identifier: Identifier,
  profile: LoadedProfile,
): boolean {
  if (lanes === 1) return false;
  const { externalId, email, phone, phoneValid } = profile;
  // So are nearly all objects, and the lane of a name is a hash of it.
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
 * Notes an object that cannot be applied. Its dead letter says whom it meant, and is written with the round: an address
 * that names it stays with whoever has it now. One of very many means nobody, then as now.
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
