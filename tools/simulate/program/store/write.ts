import type { Connection } from '../../../../src/store/database.ts';
import type { Changes } from '../../../../workers/batch/changes.ts';
import { folded } from './fold.ts';
import { simulated } from './transactions.ts';

/** Writes the objects of a round in one statement. */
export function writeChanges(tx: Connection, changes: Changes) {
  const applied = (folded.get(changes) ?? []).map(({ object }) => ({
    objectId: object.id,
    kind: 'applied' as const,
  }));
  const refused = changes.refused.map(({ item }) => ({
    objectId: item.object.id,
    kind: 'dead letter' as const,
  }));
  const stored = simulated(tx)
    .record([...applied, ...refused])
    .then(() => []);
  return { events: undefined, purchases: undefined, stored };
}
