import { newId } from '../../../src/platform/ids.ts';
import { summarizeRetention } from '../../../src/store/archive-files.ts';
import { readUsageToday } from '../../../src/store/counters.ts';
import { findApiKeys } from '../../../src/store/credentials.ts';
import { eraseHistories } from '../../../src/store/erasures.ts';
import { forgetKeys } from '../../../src/store/idempotency-keys.ts';
import { listPartitions, ownersIn } from '../../../src/store/partitions.ts';
import { recordEventsApart, recordPurchasesApart } from '../../../src/store/record-apart.ts';
import { leaseExports } from '../../../src/store/segment-export-leases.ts';
import { listDestinations } from '../../../src/store/stream-destinations.ts';
import { leaseDestinations } from '../../../src/store/stream-leases.ts';
import type { Asking } from './asking.ts';

/** What has a text of its own where tables lie apart. */
export const ofApart: Asking = (store, { workspaceId, users, keyHash }) => {
  const now = new Date().toISOString();
  const did = users.map((user, ordinal) => ({
    ...{ workspace_id: workspaceId, id: newId(), profile_id: user.id, time: now },
    ...{ app_id: 'app', properties: {}, ordinal, lane: 0 },
  }));
  return [
    () =>
      recordEventsApart(
        store,
        did.map((one) => ({ ...one, name: 'event2' })),
        now,
      ),
    () =>
      recordPurchasesApart(
        store,
        did.map((one) => ({ ...one, product_id: 'product2', currency: 'USD', price: 1, quantity: 1 })),
        now,
      ),
    () => readUsageToday(store),
    () => findApiKeys(store, [keyHash]),
    () => eraseHistories(store, 10),
    () => forgetKeys(store),
    () => leaseExports(store, 'open', { process: newId(), milliseconds: 1000, limit: 3 }),
    () => leaseExports(store, 'ready', { process: newId(), milliseconds: 1000, limit: 3 }),
    () => leaseDestinations(store, { milliseconds: 1000, limit: 3, gathers: true }),
    () => leaseDestinations(store, { milliseconds: 1000, limit: 3, gathers: false }),
    () => listDestinations(store, { limit: 10 }),
    () => summarizeRetention(store, { limit: 10 }),
    async () => {
      const [month] = await listPartitions(store);
      await ownersIn(store, month!);
    },
  ];
};
