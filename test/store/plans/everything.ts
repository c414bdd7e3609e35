import type { Connection } from '../../../src/store/database.ts';
import { noteDistributed } from '../../../src/store/distributed.ts';
import type { Asking } from './asking.ts';
import type { Filled } from './fill.ts';
import { ofApart } from './of-apart.ts';
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
 * @param tx in a transaction
 * @returns what it has sent
 */
export async function sendEverything(tx: Connection, filled: Filled) {
  return send(recordingOn(tx), filled, askings);
}

/** Calls those functions that have a text of their own where tables lie apart. @returns what they have sent */
export async function sendApart(tx: Connection, filled: Filled) {
  const recording = recordingOn(tx);
  noteDistributed(recording.store, true);
  return send(recording, filled, [ofApart]);
}

async function send(
  { store, tx, ...recorded }: ReturnType<typeof recordingOn>,
  filled: Filled,
  asked: Asking[],
) {
  for (const asking of asked) {
    for (const call of asking(store, filled)) {
      await tx.query('savepoint filled');
      await call();
      await tx.query('rollback to savepoint filled');
    }
  }
  return recorded;
}
