import { createHash } from 'node:crypto';
import { MAX_UUID, newId } from '../../../src/platform/ids.ts';
import { blockIfDummies, findCrowdedProfiles } from '../../../src/store/blocked-external-ids.ts';
import { countLanes, countUsage, readTotals, readUsageToday } from '../../../src/store/counters.ts';
import {
  countDeadLetters,
  discardDeadLetters,
  fixDeadLetter,
  listDeadLetters,
  pagesOfDeadLetters,
  readDeadLetter,
  selectClosed,
} from '../../../src/store/dead-letter-actions.ts';
import { findGroup, selectGroups, selectOfGroup } from '../../../src/store/dead-letter-groups.ts';
import {
  claimWaitingForReplay,
  countFailedByRequest,
  countWaiting,
  countWaitingByWorkspace,
  markReplayed,
  selectByRequest,
  selectDeadLetters,
  selectLatestWaiting,
} from '../../../src/store/dead-letters.ts';
import { insertDeadLetters } from '../../../src/store/failed-objects.ts';
import { exchangeArrivals, forgetArrivals, openFences } from '../../../src/store/fences.ts';
import {
  endLease,
  findKey,
  forgetKeys,
  forgetRefused,
  insertKeyIfAbsent,
  recordAnswer,
  replaceLostKey,
  takeLease,
} from '../../../src/store/idempotency-keys.ts';
import {
  claimEnvelopes,
  countLeftObjects,
  cutEnvelopes,
  dropCutEnvelopes,
  findTraces,
  forgetCutEnvelopes,
  forgetEnvelopes,
  readApplied,
  readAppliedWhole,
  readCutEnvelopes,
  readLatestTraces,
  recordWhole,
  releaseEnvelopes,
} from '../../../src/store/ledger.ts';
import { forgetOutcomes, readOutcomes, recordOutcomes } from '../../../src/store/outcomes.ts';
import {
  addRefusedObjects,
  addRefusedRequests,
  countRefused,
  findRefusedRequests,
  forgetRefusedObjects,
  listRefusedRequests,
  sumRefusedByKey,
  sumRefusedObjects,
} from '../../../src/store/refused-objects.ts';
import {
  addRefusedOfUsers,
  dayOf,
  forgetRefusedOfUsers,
  nameOf,
  selectRefusedOfUser,
} from '../../../src/store/refused-of-users.ts';
import type { Asking } from './asking.ts';

/** Records of requests and envelopes, of repeated requests and of failures. */
const actor = { kind: 'operator', name: 'ada', via: 'console' } as const;

export const ofDelivery: Asking = (store, { workspaceId, users, envelopes, objects, deadLetters }) => {
  const requestId = newId();
  const [{ id, email, phone }] = users as [(typeof users)[0]];
  const key = {
    ...{ ownerId: workspaceId, operation: 'operation' },
    ...{ hash: createHash('sha256').update('2').digest(), fingerprint: createHash('sha256').digest() },
  };
  const envelopeKeys = envelopes.map((one) => ({ id: one, workspaceId }));
  const cause = {
    ...{ workspaceId, reason: 'required', field: 'field3', operation: 'users.track', inputArray: 'events' },
    keyId: newId(),
  };
  const listed = { inputArray: 'events', index: 0, reason: 'required', field: 'name' };
  return [
    () =>
      addRefusedObjects(store, [
        {
          ...{ ...cause, hour: new Date(), objects: 1, lastRequestId: requestId },
          ...{ sampleRequestId: requestId, sample: { name: '•••' } },
        },
      ]),
    () => addRefusedRequests(store, [{ ...cause, requestId, accepted: 0, rejected: 1, objects: [listed] }]),
    () => sumRefusedObjects(store, { workspaceIds: [workspaceId], since: new Date(Date.now() - 86_400_000) }),
    () => sumRefusedByKey(store, { workspaceIds: [workspaceId], since: new Date(Date.now() - 86_400_000) }),
    () => countRefused(store),
    () => forgetRefusedObjects(store),
    () =>
      addRefusedOfUsers(store, [
        {
          ...{ workspaceId, name: nameOf(workspaceId, { external_id: 'user2' }), day: dayOf(newId()) },
          objects: [
            {
              ...{ requestId: newId(), operation: 'users.track', inputArray: 'events', index: 0 },
              ...{ reason: 'required', field: 'name' },
            },
          ],
        },
      ]),
    () => selectRefusedOfUser(store, workspaceId, [{ identifier: { external_id: 'user2' } }]),
    () => forgetRefusedOfUsers(store),
    () =>
      claimEnvelopes(
        store,
        [newId(), newId()].map((one) => ({ id: one, workspaceId, traces: undefined })),
        [workspaceId],
      ),
    () => readApplied(store, envelopes),
    () => readAppliedWhole(store, envelopes),
    () => recordWhole(store, [newId()]),
    () => readCutEnvelopes(store, envelopeKeys),
    () => countLeftObjects(store, envelopeKeys),
    () => releaseEnvelopes(store, envelopeKeys),
    () => cutEnvelopes(store, [{ id: newId(), workspaceId, left: [0, 2] }]),
    () => dropCutEnvelopes(store, envelopeKeys),
    () => forgetCutEnvelopes(store, 30),
    () => readLatestTraces(store, { workspaceId, before: MAX_UUID, limit: 200 }),
    () => listRefusedRequests(store, { workspaceId, before: MAX_UUID, limit: 101 }),
    () => findRefusedRequests(store, workspaceId, [requestId]),
    () => countFailedByRequest(store, workspaceId, [requestId]),
    () => findTraces(store, requestId, [envelopes.at(-1)!, envelopes[0]!]),
    () => forgetEnvelopes(store, 30),
    () =>
      countLanes(store, [
        { lane: 0, envelopes: 1, objects: 1, deadLetters: 0, applySeconds: 1, namedElsewhere: 0 },
      ]),
    () => {
      const counts = { attributes: 1, events: 1, purchases: 1, identity: 1, subscriptions: 1 };
      return countUsage(store, [{ workspaceId, lane: 0, ...counts }]);
    },
    () => readTotals(store),
    () => readUsageToday(store),
    () =>
      recordOutcomes(store, [
        { workspaceId, objectId: newId() },
        { workspaceId, objectId: objects[0]!, error: 'error' },
      ]),
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
    () => listDeadLetters(store, { workspaceId, states: ['waiting'] }, { limit: 50 }),
    async () => {
      for await (const _ of pagesOfDeadLetters(store, { workspaceId }, 2)) return;
    },
    () => countDeadLetters(store, { states: ['waiting', 'replaying'] }),
    () => selectByRequest(store, workspaceId, 'request2'),
    () => selectLatestWaiting(store, 100),
    () => countWaiting(store, 100),
    () => countWaitingByWorkspace(store, 100),
    () => readDeadLetter(store, deadLetters[0]!, 1000),
    () => selectGroups(store, { workspaceIds: [workspaceId] }),
    () => findGroup(store, deadLetters[0]!),
    () => selectOfGroup(store, { workspaceId, kind: 'events', reason: 'reason', limit: 50 }),
    () => selectClosed(store, [workspaceId], { state: 'discarded', limit: 50 }),
    () => selectClosed(store, [workspaceId], { state: 'discarded', kind: 'events', limit: 50 }),
    () => discardDeadLetters(store, deadLetters, { by: 'ada@example.com', reason: 'hopeless', actor }),
    () =>
      fixDeadLetter(store, deadLetters[0]!, {
        ...{ object: '{}', by: 'ada@example.com', names: ['x:user2'], actor },
      }),
    () => claimWaitingForReplay(store, deadLetters),
    () =>
      markReplayed(
        store,
        deadLetters.map((id) => ({ id, workspaceId })),
      ),
    () =>
      exchangeArrivals(store, [
        { fence: newId(), lanes: [0, 1] },
        { fence: newId(), lanes: [] },
      ]),
    () => openFences(store, [newId(), newId()]),
    () => forgetArrivals(store),
    () => insertKeyIfAbsent(store, key, { requestId, lease: 1000 }),
    () => findKey(store, key),
    () => replaceLostKey(store, key, { requestId, createdAt: '2026-01-01' }),
    () => takeLease(store, key, { requestId, lease: 1000 }),
    () => endLease(store, key, { lease: '1767225600000000' }),
    () => recordAnswer(store, key, { requestId, status: 200, body: {} }),
    () => forgetRefused(store, key, { lease: '1767225600000000' }),
    () => forgetKeys(store),
    () => findCrowdedProfiles(store),
    () =>
      blockIfDummies(store, [
        { workspaceId, profileId: id, things: 'event names' },
        { workspaceId, profileId: id, things: 'products' },
      ]),
  ];
};
