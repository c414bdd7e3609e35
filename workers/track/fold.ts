import type { AcceptedEvent, AcceptedPurchase } from '../../src/jobs/envelope.ts';
import type { EventSummaryRow } from '../../src/store/activity/add-event-summaries.ts';
import type { PurchaseSummaryRow } from '../../src/store/activity/add-purchase-summaries.ts';
import type { EventRow } from '../../src/store/activity/insert-events.ts';
import type { PurchaseRow } from '../../src/store/activity/insert-purchases.ts';
import type { PushTokenRow } from '../../src/store/profiles/upsert-push-tokens.ts';
import type { Group } from '../../src/store/subscriptions/find-groups.ts';
import { foldAttributes, importTokens } from './fold-attributes.ts';
import type { HeldProfile } from './held-profile.ts';
import { canMove } from './move-states.ts';
import { LOOK_AGAIN, type Profiles } from './profiles.ts';
import type { States } from './states.ts';
import type { Work } from './work.ts';

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
  eventSummaries: Map<string, EventSummaryRow>;
  purchaseSummaries: Map<string, PurchaseSummaryRow>;
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
    eventSummaries: new Map(),
    purchaseSummaries: new Map(),
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
    const { object, workspaceId, ordinal } = work;
    if (object.kind === 'attributes' && !object.identifier) {
      const reason = importTokens(work, object, changes);
      if (reason) changes.refused.push({ work, reason });
      continue;
    }
    let profile = changes.profiles.find(workspaceId, object.identifier!);
    if (profile === LOOK_AGAIN) return index;
    if (!profile && !object.create) continue;
    if (object.kind === 'attributes') {
      // Reached by an address that it has got in this batch: what the store has of it was not asked for.
      if (profile && !profile.holds(object.change)) return index;
      if (profile && object.standard && !canMove(profile, object.standard, changes)) return index;
      const reason = foldAttributes(profile, work, object, changes);
      if (reason) changes.refused.push({ work, reason });
      continue;
    }
    profile ??= changes.profiles.create(workspaceId, object.identifier);
    profile.touched = ordinal;
    if (object.kind === 'events') foldEvent(profile, object, changes, ordinal);
    else foldPurchase(profile, object, changes, ordinal);
  }
  return works.length;
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
    ...(app_id !== undefined && { app_id }),
    ...(properties && { properties }),
  });
  const key = `${profile_id}\0${name}`;
  const summary = changes.eventSummaries.get(key);
  if (!summary) {
    changes.eventSummaries.set(key, {
      workspace_id,
      profile_id,
      name,
      first: time,
      last: time,
      count: 1,
      ordinal,
    });
    return;
  }
  widen(summary, time, 1, ordinal);
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
    ...(app_id !== undefined && { app_id }),
    ...(properties && { properties }),
  });
  const key = `${profile_id}\0${product_id}\0${currency}`;
  const summary = changes.purchaseSummaries.get(key);
  if (!summary) {
    const lines: PurchaseSummaryRow['lines'] = [[price, quantity]];
    const row = {
      workspace_id,
      profile_id,
      product_id,
      currency,
      first: time,
      last: time,
      count: quantity,
      lines,
      ordinal,
    };
    changes.purchaseSummaries.set(key, row);
    return;
  }
  widen(summary, time, quantity, ordinal);
  summary.lines.push([price, quantity]);
}

/** Times are ISO 8601 in UTC and of one length, so that their order as text is their order in time. */
function widen(
  summary: EventSummaryRow | PurchaseSummaryRow,
  time: string,
  count: number,
  ordinal: number,
): void {
  if (time < summary.first) summary.first = time;
  if (time > summary.last) summary.last = time;
  summary.count += count;
  summary.ordinal = ordinal;
}
