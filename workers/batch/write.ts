import { namedIdentifiers } from '../../src/jobs/envelope.ts';
import {
  deprecateExternalIds,
  insertAliases,
  moveAliases,
  removeDeprecatedExternalIds,
  renameAliases,
  setExternalIds,
} from '../../src/store/alternate-identifiers.ts';
import { changeStamp, firstChange } from '../../src/store/attribute-changes.ts';
import type { Connection } from '../../src/store/database.ts';
import { liesApart, readSequenceValues } from '../../src/store/distributed.ts';
import {
  clearSpamMarks,
  dropUnheldAddresses,
  type HeldAddress,
  setEmailStates,
  setHardBounces,
  takeEmailStates,
} from '../../src/store/email-addresses.ts';
import { eraseSlice, freeAliases, freeExternalIds, recordDeletes } from '../../src/store/erasures.ts';
import {
  type ActivityIds,
  mergeAppSummaries,
  mergeEventSummaries,
  type Recorded,
  recordEvents,
  recordEventsApart,
} from '../../src/store/events.ts';
import { forgetDeadLetters, handOverDeadLetters } from '../../src/store/left-names.ts';
import { type MergePair, mergeProfiles, ROWS_AT_ONCE, recordMerges } from '../../src/store/merges.ts';
import { recordOutcomes } from '../../src/store/outcomes.ts';
import {
  type CustomAttributesUpdate,
  movePushTokens,
  updateCustomAttributes,
  upsertPushTokens,
} from '../../src/store/profile-attributes.ts';
import {
  insertProfiles,
  type NewProfile,
  type ProfileUpdate,
  removeProfiles,
  updateProfiles,
} from '../../src/store/profiles.ts';
import { mergePurchaseSummaries, recordPurchases, recordPurchasesApart } from '../../src/store/purchases.ts';
import { type RecordedState, recordStateChanges } from '../../src/store/subscription-history.ts';
import {
  dropSubscriptionStates,
  setSubscriptionStates,
  takeSubscriptionStates,
} from '../../src/store/subscription-states.ts';
import { answersTo, sendNamed, sendPipelined } from '../../src/store/transactions.ts';
import type { Changes, IdentityChanges } from './changes.ts';
import { recordRefused } from './failures.ts';
import type { LoadedProfile } from './loaded-profile.ts';

/** A round whose statements have been sent to Postgres. */
export interface SentRound {
  /** Ids of its events and of its purchases; undefined if the round has no events or no purchases. */
  events: ActivityIds | undefined;
  purchases: ActivityIds | undefined;
  /** Resolves with the changed subscription states when all statements have succeeded. */
  stored: Promise<RecordedState[]>;
}

/**
 * Writes a folded round. The number of statements is fixed and does not depend on the number of objects; identity
 * operations add theirs.
 *
 * @param now the store's clock at the start of the batch, ISO 8601 with microseconds
 */
export function writeChanges(tx: Connection, changes: Changes, now: string): SentRound {
  const made: NewProfile[] = [];
  const updated: ProfileUpdate[] = [];
  const customized: CustomAttributesUpdate[] = [];
  for (const profile of changes.profiles.all()) {
    if (profile.isNew) made.push(toNewProfile(profile));
    else if (profile.changed && profile.changesColumns) updated.push(toUpdate(profile));
    else if (profile.changed) customized.push(toUpdate(profile));
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
  const isApart = liesApart(tx);
  const sent = sendNamed(tx, {
    // Before the spam marks that the round itself sets.
    clearedSpam: () => clearedSpam.length > 0 && clearSpamMarks(tx, clearedSpam, now),
    events: () => sendRows(tx, isApart ? recordEventsApart : recordEvents, { rows: changes.events, now }),
    purchases: () =>
      sendRows(tx, isApart ? recordPurchasesApart : recordPurchases, { rows: changes.purchases, now }),
    made: () => made.length > 0 && insertProfiles(tx, made, now),
    updated: () => updated.length > 0 && updateProfiles(tx, updated, now),
    customized: () => customized.length > 0 && updateCustomAttributes(tx, customized, now),
    freedAliases: () => newAliases.length > 0 && freeAliases(tx, newAliases),
    newAliases: () => newAliases.length > 0 && insertAliases(tx, newAliases, now),
    pushTokens: () => pushTokens.length > 0 && upsertPushTokens(tx, pushTokens, now),
    emailStates: () => emailStates.length > 0 && setEmailStates(tx, emailStates, now),
    takenEmailStates: () => takenEmailStates.length > 0 && takeEmailStates(tx, takenEmailStates, now),
    groupStates: () => groupStates.length > 0 && setSubscriptionStates(tx, groupStates, now),
    takenGroupStates: () => takenGroupStates.length > 0 && takeSubscriptionStates(tx, takenGroupStates, now),
    droppedGroupStates: () => droppedGroupStates.length > 0 && dropSubscriptionStates(tx, droppedGroupStates),
    bounces: () => bounces.length > 0 && setHardBounces(tx, bounces, now),
    // After the states, because it needs their rows to be locked.
    stateChanges: () => states.changes.length > 0 && recordStateChanges(tx, states.changes, now),
    refused: () => changes.refused.length > 0 && recordRefused(tx, changes.refused),
    identity: () => writeIdentity(tx, changes.identity, now),
  });
  return {
    events: sent.events?.ids,
    purchases: sent.purchases?.ids,
    stored: statesStored({ ...sent, events: sent.events?.stored, purchases: sent.purchases?.stored }),
  };
}

/** Events or purchases that were sent. */
interface SentRows {
  /** Absent if they could not be sent; `stored` then rejects with the reason. */
  ids?: ActivityIds;
  stored: Promise<unknown>;
}

/** Sends the events or the purchases of a round; returns undefined without any. */
function sendRows<Row>(
  tx: Connection,
  record: (tx: Connection, rows: Row[], now: string) => Recorded,
  { rows, now }: { rows: Row[]; now: string },
): SentRows | undefined {
  if (rows.length === 0) return undefined;
  try {
    const recorded = record(tx, rows, now);
    return { ids: recorded, stored: recorded.stored };
  } catch (error) {
    // Thrown from here, the error would leave the replies of the statements already sent unhandled.
    return { stored: Promise.reject(error) };
  }
}

/** Waits for all replies. @returns the changed subscription states */
async function statesStored(
  answers: { stateChanges: false | Promise<RecordedState[]> } & Record<string, unknown>,
): Promise<RecordedState[]> {
  await answersTo(Object.values(answers));
  return (await answers.stateChanges) || [];
}

function toNewProfile(profile: LoadedProfile): NewProfile {
  const { columns } = profile;
  const custom = profile.custom.written().set;
  const stamp = stampOf(profile);
  return {
    ...columns,
    workspaceId: profile.workspaceId,
    id: profile.id,
    externalId: profile.externalId,
    customAttributes: custom,
    attributeChanges: stamp && firstChange(stamp, { columns, custom }),
    ordinal: profile.touched,
  };
}

/** Returns the beginning of the entry for changed attributes; undefined if no attribute object named the user. */
function stampOf({ lastItem }: LoadedProfile): string | undefined {
  return lastItem && changeStamp(lastItem.object.id, lastItem.requestId);
}

/** Creates an update row. Rows of one shape are written faster, so all have `columns`, even if only `set` is read. */
function toUpdate(profile: LoadedProfile): ProfileUpdate {
  return {
    workspaceId: profile.workspaceId,
    id: profile.id,
    set: profile.custom.text(),
    stamp: stampOf(profile),
    unset: profile.custom.written().unset,
    ordinal: profile.touched,
    columns: profile.columns,
  };
}

/**
 * Writes the identity operations of a round, after everything else that was folded in it. The statements are sent in
 * order without waiting for each other's replies.
 *
 * @param now the store's clock at the start of the batch, ISO 8601 with microseconds
 */
export async function writeIdentity(tx: Connection, changes: IdentityChanges, now: string): Promise<void> {
  const { renamedAliases, externalIds, deprecated, undeprecated, merges, deletes, outcomes } = changes;
  // Awaited only if it is needed, because otherwise all statements are sent together.
  const sequenceValues = merges.length + deletes.length > 0 ? readSequenceValues(tx) : undefined;
  if (sequenceValues) await sequenceValues;
  await sendPipelined(tx, [
    () =>
      renamedAliases.length > 0 &&
      freeAliases(
        tx,
        renamedAliases.map((row) => ({ ...row, aliasName: row.newAliasName })),
      ),
    () => renamedAliases.length > 0 && renameAliases(tx, renamedAliases),
    () => externalIds.length > 0 && setExternalIds(tx, externalIds, now),
    () => deprecated.length > 0 && freeExternalIds(tx, deprecated),
    () => deprecated.length > 0 && deprecateExternalIds(tx, deprecated, now),
    () => undeprecated.length > 0 && removeDeprecatedExternalIds(tx, undeprecated),
    ...(merges.length > 0 ? merging(tx, merges, now) : []),
    ...(deletes.length > 0 ? deleting(tx, changes, now) : []),
    () => outcomes.length > 0 && recordOutcomes(tx, outcomes),
  ]);
}

function merging(tx: Connection, merges: MergePair[], now: string): (() => Promise<unknown>)[] {
  const gone = merges.map(({ workspaceId, mergedId }) => ({ workspaceId, id: mergedId }));
  return [
    () => handOverDeadLetters(tx, merges),
    () => mergeProfiles(tx, merges, now),
    () => moveAliases(tx, merges),
    () => movePushTokens(tx, merges, ROWS_AT_ONCE),
    () => mergeEventSummaries(tx, merges, ROWS_AT_ONCE),
    () => mergePurchaseSummaries(tx, merges, ROWS_AT_ONCE),
    () => mergeAppSummaries(tx, merges),
    () => recordMerges(tx, merges, now),
    () => eraseSlice(tx, 'names', { keys: gone, rowsOfEach: ROWS_AT_ONCE }),
    () => removeProfiles(tx, gone),
  ];
}

function deleting(tx: Connection, { deletes, deleted }: IdentityChanges, now: string): (() => unknown)[] {
  const named = deletes.flatMap(({ workspaceId, object }) =>
    namedIdentifiers(object).map((identifier) => ({ workspaceId, identifier })),
  );
  const addresses = deleted.flatMap(addressesOf);
  return [
    () => forgetDeadLetters(tx, { keys: deleted, named }, now),
    () => deleted.length > 0 && recordDeletes(tx, deleted, now),
    () => deleted.length > 0 && eraseSlice(tx, 'belongings', { keys: deleted, rowsOfEach: ROWS_AT_ONCE }),
    () => deleted.length > 0 && eraseSlice(tx, 'names', { keys: deleted, rowsOfEach: ROWS_AT_ONCE }),
    () => deleted.length > 0 && removeProfiles(tx, deleted),
    () => addresses.length > 0 && dropUnheldAddresses(tx, addresses, now),
  ];
}

function addressesOf({ workspaceId, email, phone, phoneValid }: LoadedProfile): HeldAddress[] {
  const addresses: HeldAddress[] = [];
  if (email !== null) addresses.push({ workspaceId, kind: 'email', address: email });
  if (phone !== null && phoneValid) addresses.push({ workspaceId, kind: 'phone', address: phone });
  return addresses;
}
