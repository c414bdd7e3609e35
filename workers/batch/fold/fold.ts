import { setImmediate as turn } from 'node:timers/promises';
import { type AcceptedEvent, type AcceptedPurchase, namedIdentifiers } from '../../../src/jobs/envelope.ts';
import type { IdentityObject } from '../../../src/jobs/payloads.ts';
import { type Identifier, isAddress } from '../../../src/profile/identifier.ts';
import { identifierKey, laneOf } from '../../../src/queue/lanes.ts';
import type { Changes } from '../changes.ts';
import type { HeldProfile } from '../held-profile.ts';
import { tooManyHolders } from '../profiles.ts';
import { isSubscription, isTrack, RELOAD, type WorkItem } from '../work-item.ts';
import { foldAttributes, importTokens } from './attributes.ts';
import { foldIdentity } from './identity.ts';
import { canMove, meetsSealed } from './states.ts';
import { foldSubscription } from './subscription.ts';

/** Milliseconds after which whatever else waits in this process has its turn, and after which the time is looked at. */
const TURN_MS = 100;

/**
 * Plays a batch through in order, in memory. Each object sees what the objects before it have done.
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
    if (performance.now() > turnEnds) {
      if (performance.now() > until) return index;
      await turn();
      turnEnds = performance.now() + TURN_MS;
    }
    const item = items[index]!;
    changes.states.request = item.requestId;
    const reason = poison.get(item.object.id);
    if (reason !== undefined) {
      // Its names were not looked up: an identity operation before it may have sealed one.
      if (changes.profiles.anySealed) return index;
      refuse(item, reason, changes);
      continue;
    }
    if (!isTrack(item)) {
      const folded = isSubscription(item)
        ? foldSubscription(item, index, changes)
        : foldIdentity(item as WorkItem<IdentityObject>, changes);
      if (folded === RELOAD) return index;
      if (folded !== undefined) refuse(item, folded, changes);
      continue;
    }
    const { object, workspaceId, ordinal } = item;
    if (object.kind === 'attributes' && !object.identifier) {
      // A token of somebody who is deleted belongs to nobody afterwards.
      if (changes.identity.deleted.length > 0) return index;
      if (object.standard && meetsSealed(workspaceId, undefined, object.standard, changes)) return index;
      const reason = importTokens(item, object, changes);
      if (reason === RELOAD) return index;
      if (reason) changes.refused.push({ item, reason });
      continue;
    }
    const identifier = object.identifier!;
    if (isAddress(identifier) && changes.profiles.isCrowded(workspaceId, identifier)) {
      refuse(item, tooManyHolders(identifier), changes);
      continue;
    }
    let profile = changes.profiles.find(workspaceId, identifier);
    if (profile === RELOAD) return index;
    if (!profile && object.create === false) continue;
    // Who is made here gets the address.
    if (!profile && isAddress(identifier) && changes.profiles.isPinned(workspaceId, identifier)) return index;
    if (profile && isNamedElsewhere(item, identifier, profile)) changes.namedElsewhere.push(item);
    if (object.kind === 'attributes') {
      if (object.standard && meetsSealed(workspaceId, profile, object.standard, changes)) return index;
      // Reached by an address that it has got in this batch: what the store has of it was not asked for.
      if (profile && !profile.holds(object.change)) return index;
      if (profile && object.standard && !canMove(profile, object.standard, changes)) return index;
      const reason = foldAttributes(profile, item, object, changes);
      if (reason === RELOAD) return index;
      if (reason) refuse(item, reason, changes);
      continue;
    }
    profile ??= changes.profiles.create(workspaceId, object.identifier);
    profile.touched = ordinal;
    if (object.kind === 'events') foldEvent(profile, object, changes, ordinal);
    else foldPurchase(profile, object, changes, ordinal);
  }
  return items.length;
}

/** Whether another lane is that of the name by which the user goes first: external id, email address, phone number. */
function isNamedElsewhere(
  { workspaceId, lanes = 1 }: WorkItem,
  identifier: Identifier,
  profile: HeldProfile,
): boolean {
  if (lanes === 1) return false;
  const { externalId, email, phone, phoneValid } = profile;
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
function refuse(item: WorkItem, reason: string, { refused, profiles }: Changes): void {
  refused.push({ item, reason });
  for (const identifier of namedIdentifiers(item.object))
    if (isAddress(identifier)) profiles.pin(item.workspaceId, identifier);
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
