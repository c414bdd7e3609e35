import type { Connection } from '../../../../src/store/database.ts';
import type { Changes } from '../../../../workers/batch/changes.ts';
import { writeChanges as realWrite } from '../../../../workers/batch/write.ts';
import { folded } from '../store/fold.ts';
import { gated } from './client.ts';

/** Writes a round, and records its objects in the transaction, with which they take effect. */
export function writeChanges(tx: Connection, changes: Changes, now: string): ReturnType<typeof realWrite> {
  const refused = new Set(changes.refused.map(({ item }) => item.object.id));
  const applied = (folded.get(changes) ?? [])
    .filter(({ object }) => !refused.has(object.id))
    .map(({ object }) => ({ objectId: object.id, kind: 'applied' as const }));
  const noted = gated(tx).record(applied);
  const sent = realWrite(tx, changes, now);
  // If an object is refused, the other statements of the round fail after the statement that records the objects.
  sent.stored.catch(() => {});
  return { ...sent, stored: noted.then(() => sent.stored) };
}
