import { addEventSummaries } from '../../src/store/activity/add-event-summaries.ts';
import { addPurchaseSummaries } from '../../src/store/activity/add-purchase-summaries.ts';
import { insertEvents } from '../../src/store/activity/insert-events.ts';
import { insertPurchases } from '../../src/store/activity/insert-purchases.ts';
import type { Connection } from '../../src/store/database.ts';
import { insertAliases } from '../../src/store/profiles/insert-aliases.ts';
import { insertProfiles, type NewProfile } from '../../src/store/profiles/insert-profiles.ts';
import {
  type CustomAttributesUpdate,
  updateCustomAttributes,
} from '../../src/store/profiles/update-custom-attributes.ts';
import { type ProfileUpdate, updateProfiles } from '../../src/store/profiles/update-profiles.ts';
import { upsertPushTokens } from '../../src/store/profiles/upsert-push-tokens.ts';
import { setEmailStates } from '../../src/store/subscriptions/set-email-states.ts';
import { setSubscriptionStates } from '../../src/store/subscriptions/set-subscription-states.ts';
import type { Changes } from './fold.ts';
import type { HeldProfile } from './held-profile.ts';

/**
 * Writes a folded batch: at most eleven statements, whatever the number of objects.
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
  if (made.length > 0) await insertProfiles(tx, made, now);
  if (updated.length > 0) await updateProfiles(tx, updated, now);
  if (customized.length > 0) await updateCustomAttributes(tx, customized, now);
  const { newAliases } = changes.profiles;
  if (newAliases.length > 0) await insertAliases(tx, newAliases, now);
  if (changes.pushTokens.size > 0) await upsertPushTokens(tx, [...changes.pushTokens.values()], now);
  if (changes.events.length > 0) await insertEvents(tx, changes.events);
  if (changes.purchases.length > 0) await insertPurchases(tx, changes.purchases);
  if (changes.eventSummaries.size > 0) await addEventSummaries(tx, [...changes.eventSummaries.values()], now);
  if (changes.purchaseSummaries.size > 0)
    await addPurchaseSummaries(tx, [...changes.purchaseSummaries.values()], now);
  if (changes.emailStates.size > 0) await setEmailStates(tx, [...changes.emailStates.values()], now);
  if (changes.groupStates.size > 0) await setSubscriptionStates(tx, [...changes.groupStates.values()], now);
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
