import { uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

/** How an object ended whose sender waits for it. */
export interface Outcome {
  object_id: string;
  /** Why it did not take effect; absent: it did. */
  error?: string;
}

/** A replay may decide an object anew. */
const statement = `
  insert into outcomes (object_id, error)
  select given.object_id, given.error
  from unnest($1::uuid[], $2::text[]) as given (object_id, error)
  on conflict (object_id) do update set error = excluded.error, decided_at = excluded.decided_at`;

/** In the transaction that applies the objects: whoever sees an outcome sees its effect. */
export async function recordOutcomes(tx: Connection, outcomes: Outcome[]): Promise<void> {
  await tx.query({
    name: 'record-outcomes',
    text: statement,
    values: [uuidArray(outcomes, (row) => row.object_id), outcomes.map((row) => row.error)],
  });
}
