import { createHash } from 'node:crypto';
import { newId } from '../../../src/ids.ts';
import { blockIfDummies } from '../../../src/store/blocked-external-ids/block-if-dummies.ts';
import { findCrowdedProfiles } from '../../../src/store/blocked-external-ids/find-crowded-profiles.ts';
import { claimWaitingForReplay } from '../../../src/store/dead-letters/claim-waiting-for-replay.ts';
import { insertDeadLetters } from '../../../src/store/dead-letters/insert-dead-letters.ts';
import { markReplayed } from '../../../src/store/dead-letters/mark-replayed.ts';
import { selectByRequest } from '../../../src/store/dead-letters/select-by-request.ts';
import { selectDeadLetters } from '../../../src/store/dead-letters/select-dead-letters.ts';
import { selectLatestWaiting } from '../../../src/store/dead-letters/select-latest-waiting.ts';
import { claimEnvelopes } from '../../../src/store/delivery/claim-envelopes.ts';
import { countLanes } from '../../../src/store/delivery/count-lanes.ts';
import { countUsage } from '../../../src/store/delivery/count-usage.ts';
import { findTraces } from '../../../src/store/delivery/find-traces.ts';
import { forgetEnvelopes } from '../../../src/store/delivery/forget-envelopes.ts';
import { readApplied } from '../../../src/store/delivery/read-applied.ts';
import { readTotals } from '../../../src/store/delivery/read-totals.ts';
import { readUsageToday } from '../../../src/store/delivery/read-usage-today.ts';
import { announceArrival } from '../../../src/store/fences/announce-arrival.ts';
import { forgetArrivals } from '../../../src/store/fences/forget-arrivals.ts';
import { openFence } from '../../../src/store/fences/open-fence.ts';
import { readFence } from '../../../src/store/fences/read-fence.ts';
import { endLease } from '../../../src/store/idempotency/end-lease.ts';
import { findKey } from '../../../src/store/idempotency/find-key.ts';
import { forgetKeys } from '../../../src/store/idempotency/forget-keys.ts';
import { forgetRefused } from '../../../src/store/idempotency/forget-refused.ts';
import { insertKeyIfAbsent } from '../../../src/store/idempotency/insert-key.ts';
import { recordAnswer } from '../../../src/store/idempotency/record-answer.ts';
import { takeLease } from '../../../src/store/idempotency/take-lease.ts';
import { forgetOutcomes } from '../../../src/store/outcomes/forget-outcomes.ts';
import { readOutcomes } from '../../../src/store/outcomes/read-outcomes.ts';
import { recordOutcomes } from '../../../src/store/outcomes/record-outcomes.ts';
import type { Asking } from './asking.ts';

/** What is kept of requests and envelopes, of their repeats and of what went wrong. */
export const ofDelivery: Asking = (store, { workspaceId, users, envelopes, objects, deadLetters }) => {
  const requestId = newId();
  const [{ id, email, phone }] = users as [(typeof users)[0]];
  const key = {
    ...{ ownerId: workspaceId, operation: 'operation' },
    ...{ hash: createHash('sha256').update('2').digest(), fingerprint: createHash('sha256').digest() },
  };
  return [
    () =>
      claimEnvelopes(
        store,
        [newId(), newId()].map((one) => ({ id: one, traces: undefined })),
      ),
    () => readApplied(store, envelopes),
    () => findTraces(store, requestId, [envelopes.at(-1)!, envelopes[0]!]),
    () => forgetEnvelopes(store, 30),
    () => countLanes(store, [{ lane: 0, envelopes: 1, objects: 1, dead_letters: 0, apply_seconds: 1 }]),
    () => {
      const counts = { attributes: 1, events: 1, purchases: 1, identity: 1, subscriptions: 1 };
      return countUsage(store, [{ workspace_id: workspaceId, lane: 0, ...counts }]);
    },
    () => readTotals(store),
    () => readUsageToday(store),
    () => recordOutcomes(store, [{ object_id: newId() }, { object_id: objects[0]!, error: 'error' }]),
    () => readOutcomes(store, objects),
    () => forgetOutcomes(store),
    () =>
      insertDeadLetters(
        store,
        [
          { external_id: 'user2' },
          { user_alias: { alias_label: 'label', alias_name: 'alias2' } },
          { email },
          { phone },
        ].map((identifier) => ({
          ...{
            id: newId(),
            workspaceId,
            requestId,
            kind: 'events',
            jobName: 'track',
            identifiers: [identifier],
          },
          ...{ object: {}, reason: 'reason' },
        })),
      ),
    () => selectDeadLetters(store, deadLetters),
    () => selectByRequest(store, workspaceId, 'request2'),
    () => selectLatestWaiting(store, 100),
    () => claimWaitingForReplay(store, deadLetters),
    () => markReplayed(store, deadLetters),
    () => announceArrival(store, newId(), 0),
    () => readFence(store, newId()),
    () => openFence(store, newId()),
    () => forgetArrivals(store),
    () => insertKeyIfAbsent(store, key, { requestId }, 1000),
    () => findKey(store, key),
    () => takeLease(store, key, requestId, 1000),
    () => endLease(store, key, requestId),
    () => recordAnswer(store, key, requestId, { status: 200, body: {} }),
    () => forgetRefused(store, key, requestId),
    () => forgetKeys(store),
    () => findCrowdedProfiles(store),
    () =>
      blockIfDummies(store, [
        { workspaceId, profileId: id, things: 'event names' },
        { workspaceId, profileId: id, things: 'products' },
      ]),
  ];
};
