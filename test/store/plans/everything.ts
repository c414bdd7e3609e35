import type { Connection } from '../../../src/store/database.ts';
import type { Filled } from './fill.ts';
import { ofDelivery } from './of-delivery.ts';
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
 * @returns the statements that were sent
 */
export async function sendEverything(tx: Connection, filled: Filled) {
  const { store, ...recorded } = recordingOn(tx);
  for (const asking of askings) {
    for (const call of asking(store, filled)) {
      await tx.query('savepoint filled');
      await call();
      await tx.query('rollback to savepoint filled');
    }
  }
  return recorded;
}
