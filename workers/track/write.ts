import { recordEvents } from '../../src/store/activity/record-events.ts';
import { recordPurchases } from '../../src/store/activity/record-purchases.ts';
import { type Connection, sendTogether } from '../../src/store/database.ts';
import { insertAliases } from '../../src/store/profiles/insert-aliases.ts';
import { insertProfiles, type NewProfile } from '../../src/store/profiles/insert-profiles.ts';
import {
  type CustomAttributesUpdate,
  updateCustomAttributes,
} from '../../src/store/profiles/update-custom-attributes.ts';
import { type ProfileUpdate, updateProfiles } from '../../src/store/profiles/update-profiles.ts';
import { upsertPushTokens } from '../../src/store/profiles/upsert-push-tokens.ts';
import { clearSpamMarks } from '../../src/store/subscriptions/clear-spam-marks.ts';
import { dropSubscriptionStates } from '../../src/store/subscriptions/drop-subscription-states.ts';
import { recordStateChanges } from '../../src/store/subscriptions/record-state-changes.ts';
import { setEmailStates } from '../../src/store/subscriptions/set-email-states.ts';
import { setHardBounces } from '../../src/store/subscriptions/set-hard-bounces.ts';
import { setSubscriptionStates } from '../../src/store/subscriptions/set-subscription-states.ts';
import { takeEmailStates } from '../../src/store/subscriptions/take-email-states.ts';
import { takeSubscriptionStates } from '../../src/store/subscriptions/take-subscription-states.ts';
import { writeIdentity } from '../identity/write-identity.ts';
import { recordRefused } from '../refused.ts';
import type { Changes } from './fold.ts';
import type { HeldProfile } from './held-profile.ts';

/**
 * Writes a folded round: at most fifteen statements, whatever the number of objects, and those of its identity
 * operations.
 *
 * @param now the store's clock at the start of the batch
 */
export async function writeChanges(tx: Connection, changes: Changes, now: Date): Promise<void> {
  const made: NewProfile[] = [];
  const updated: ProfileUpdate[] = [];
  const customized: CustomAttributesUpdate[] = [];
  for (const profile of changes.profiles.all()) {
    if (profile.isNew) made.push(toNewProfile(profile));
    else if (profile.changed && profile.changesColumns)
      updated.push({ ...toCustom(profile), columns: profile.columns });
    else if (profile.changed) customized.push(toCustom(profile));
  }
  const { newAliases } = changes.profiles;
  const pushTokens = [...changes.pushTokens.values()];
  const { states } = changes;
  const { clearedSpam } = changes.emails;
  const bounces = [...changes.emails.bounces.values()];
  const emailStates = states.emailStates('set');
  const takenEmailStates = states.emailStates('taken');
  const groupStates = states.groupStates('set');
  const takenGroupStates = states.groupStates('taken');
  const droppedGroupStates = states.groupStates('dropped');
  await sendTogether(tx, [
    // Before the round's own marks.
    () => clearedSpam.length > 0 && clearSpamMarks(tx, clearedSpam, now),
    () => changes.events.length > 0 && recordEvents(tx, changes.events, now),
    () => changes.purchases.length > 0 && recordPurchases(tx, changes.purchases, now),
    () => made.length > 0 && insertProfiles(tx, made, now),
    () => updated.length > 0 && updateProfiles(tx, updated, now),
    () => customized.length > 0 && updateCustomAttributes(tx, customized, now),
    () => newAliases.length > 0 && insertAliases(tx, newAliases, now),
    () => pushTokens.length > 0 && upsertPushTokens(tx, pushTokens, now),
    () => emailStates.length > 0 && setEmailStates(tx, emailStates, now),
    () => takenEmailStates.length > 0 && takeEmailStates(tx, takenEmailStates, now),
    () => groupStates.length > 0 && setSubscriptionStates(tx, groupStates, now),
    () => takenGroupStates.length > 0 && takeSubscriptionStates(tx, takenGroupStates, now),
    () => droppedGroupStates.length > 0 && dropSubscriptionStates(tx, droppedGroupStates),
    () => bounces.length > 0 && setHardBounces(tx, bounces, now),
    // Behind the states, whose rows it needs locked.
    () => states.changes.length > 0 && recordStateChanges(tx, states.changes, now),
    () => changes.refused.length > 0 && recordRefused(tx, changes.refused),
    () => writeIdentity(tx, changes.identity, now),
  ]);
}

function toNewProfile(profile: HeldProfile): NewProfile {
  return {
    ...profile.columns,
    workspace_id: profile.workspaceId,
    id: profile.id,
    external_id: profile.externalId,
    email_subscribe: profile.columns.email_subscribe ?? null,
    push_subscribe: profile.columns.push_subscribe ?? null,
    custom_attributes: Object.fromEntries(profile.set),
    ordinal: profile.touched,
  };
}

function toCustom(profile: HeldProfile): CustomAttributesUpdate {
  return {
    workspace_id: profile.workspaceId,
    id: profile.id,
    set: Object.fromEntries(profile.set),
    unset: [...profile.unset],
    ordinal: profile.touched,
  };
}
