import type { Connection } from '../../../src/store/database.ts';
import { noteDistributed } from '../../../src/store/distributed.ts';
import type { Filled } from './fill.ts';
import { ofDelivery } from './of-delivery.ts';
import { ofDistributed } from './of-distributed.ts';
import { ofExports } from './of-exports.ts';
import { ofIdentity } from './of-identity.ts';
import { ofRetention } from './of-retention.ts';
import { ofStreams } from './of-streams.ts';
import { ofSubscriptions } from './of-subscriptions.ts';
import { ofSyncs } from './of-syncs.ts';
import { ofUsers } from './of-users.ts';
import { ofWorkspaces } from './of-workspaces.ts';
import { recordingOn } from './record.ts';

const askings = [
  ofUsers,
  ofIdentity,
  ofSubscriptions,
  ofDelivery,
  ofWorkspaces,
  ofSyncs,
  ofRetention,
  ofStreams,
  ofExports,
];

/**
 * Calls every function of the store, each on the database as it was filled.
 * @param tx a connection in a transaction
 * @param options `isDistributed`: calls the functions that send another statement to a distributed Postgres, as on one
 * @returns the statements that were sent
 */
export async function sendEverything(tx: Connection, filled: Filled, { isDistributed = false } = {}) {
  const { store, ...recorded } = recordingOn(tx);
  if (isDistributed) noteDistributed(store, true);
  for (const asking of isDistributed ? [ofDistributed] : askings) {
    for (const call of asking(store, filled)) {
      await tx.query('savepoint filled');
      await call();
      await tx.query('rollback to savepoint filled');
    }
  }
  return recorded;
}
