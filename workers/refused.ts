import type { Connection } from '../src/store/database.ts';
import { insertDeadLetters } from '../src/store/dead-letters/insert-dead-letters.ts';
import { recordOutcomes } from '../src/store/outcomes/record-outcomes.ts';
import { toFailed } from './contract.ts';
import type { Work } from './track/work.ts';

/** An object that cannot be applied, and why: one sentence for a person. */
export interface Refused {
  work: Work;
  reason: string;
}

/**
 * Writes down objects that cannot be applied, at their place in the order: a delete that follows finds their dead
 * letters. Whoever waits for the outcome is told.
 */
export async function recordRefused(tx: Connection, refused: Refused[]): Promise<void> {
  await insertDeadLetters(
    tx,
    refused.map(({ work, reason }) => toFailed({ ...work, id: work.object.id }, reason)),
  );
  const awaited = refused.filter(({ work }) => isAwaited(work));
  if (awaited.length === 0) return;
  await recordOutcomes(
    tx,
    awaited.map(({ work, reason }) => ({ object_id: work.object.id, error: reason })),
  );
}

function isAwaited({ object: { kind } }: Work): boolean {
  return kind === 'external_id_rename' || kind === 'external_id_remove';
}
