import { newId } from '../../../src/platform/ids.ts';
import { summarizeRetention } from '../../../src/store/archive-files.ts';
import { readUsageToday } from '../../../src/store/counters.ts';
import { findApiKeys } from '../../../src/store/credentials.ts';
import { eraseHistories } from '../../../src/store/erasures.ts';
import { recordEventsApart } from '../../../src/store/events.ts';
import { forgetKeys } from '../../../src/store/idempotency-keys.ts';
import { listPartitions, ownersIn } from '../../../src/store/partitions.ts';
import { recordPurchasesApart } from '../../../src/store/purchases.ts';
import { leaseExports } from '../../../src/store/segment-export-leases.ts';
import { createDestination, listDestinations } from '../../../src/store/stream-destinations.ts';
import { leaseDestinations } from '../../../src/store/stream-leases.ts';
import type { Asking } from './asking.ts';

/** Functions with a different statement or path on distributed tables. */
export const ofDistributed: Asking = (store, { workspaceId, users, keyHash }) => {
  const now = new Date().toISOString();
  const [{ id: profileId }] = users as [(typeof users)[0]];
  const did = { workspaceId, profileId, lane: 0, ordinal: 0, time: now, id: newId() };
  const none = { appId: undefined, properties: undefined };
  const lease = { milliseconds: 1000, limit: 3 };
  const destination = {
    ...{ workspaceId, name: 'all', kind: 'webhook', settings: { url: 'http://127.0.0.1:9/' }, secret: null },
    from: new Date(0),
  };
  const leases = [true, false].map((gathers) => async () => {
    await createDestination(store, { ...destination, id: newId(), ...(gathers && { gatherMs: 1 }) });
    await leaseDestinations(store, { milliseconds: 1000, limit: 3, gathers });
    await listDestinations(store, { limit: 10 });
    await listDestinations(store, { workspaceId, limit: 10 });
  });
  return [
    () => recordEventsApart(store, [{ ...did, ...none, name: 'event2' }], now).stored,
    () =>
      recordPurchasesApart(
        store,
        [{ ...did, ...none, productId: 'product2', currency: 'USD', price: 1, quantity: 1 }],
        now,
      ).stored,
    () => readUsageToday(store),
    () => findApiKeys(store, [keyHash]),
    () => eraseHistories(store, 10),
    () => forgetKeys(store),
    ...(['open', 'ready'] as const).map((state) => () => leaseExports(store, state, lease)),
    ...leases,
    async () => void (await ownersIn(store, (await listPartitions(store))[0]!)),
    () => summarizeRetention(store, { limit: 10 }),
  ];
};
