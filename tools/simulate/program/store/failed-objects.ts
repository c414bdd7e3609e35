import type { Connection } from '../../../../src/store/database.ts';
import type { FailedObject } from '../../../../src/store/failed-objects.ts';
import { simulated } from './transactions.ts';

export function insertDeadLetters(tx: Connection, failed: FailedObject[]): Promise<void> {
  return simulated(tx).record(failed.map(({ id }) => ({ objectId: id, kind: 'dead letter' as const })));
}
