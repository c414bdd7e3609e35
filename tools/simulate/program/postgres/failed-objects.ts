import type { Connection } from '../../../../src/store/database.ts';
import { insertDeadLetters as realInsert } from '../../../../src/store/failed-objects.ts';
import { gated } from './client.ts';

export * from '../../../../src/store/failed-objects.ts';

/** Inserts dead letters, and records them in the transaction. */
export async function insertDeadLetters(...given: Parameters<typeof realInsert>): Promise<void> {
  const [tx, failed] = given;
  const noted = gated(tx as Connection).record(
    failed.map(({ id }) => ({ objectId: id, kind: 'dead letter' as const })),
  );
  const inserted = realInsert(...given);
  inserted.catch(() => {});
  await noted;
  await inserted;
}
