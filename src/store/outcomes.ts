import { uuidArray } from './arrays.ts';
import type { Connection, Pool } from './database.ts';

/** By a range of the primary key: an object's id is a UUIDv7, and older than its outcome. */
const forgetOutcomesStatement = `
  delete from outcomes
  where outcomes.object_id < uuid_v7_floor(now() - interval '1 day')
    and outcomes.decided_at < now() - interval '1 day'`;

/** Removes outcomes that nobody waits for any more. */
export async function forgetOutcomes(pool: Pool): Promise<void> {
  await pool.query(forgetOutcomesStatement);
}

/** How an object has ended; without an error it took effect. */
interface ReadOutcome {
  objectId: string;
  error: string | null;
}

/** By primary key; locks nothing. */
const readOutcomesStatement = `
  select outcomes.object_id as "objectId", outcomes.error
  from outcomes
  where outcomes.object_id = any($1::uuid[])`;

/** Those of the objects that have ended by now. */
export async function readOutcomes(pool: Pool, objectIds: string[]): Promise<ReadOutcome[]> {
  const { rows } = await pool.query<ReadOutcome>({
    name: 'read-outcomes',
    text: readOutcomesStatement,
    values: [objectIds],
  });
  return rows;
}

/** How an object ended whose sender waits for it. */
export interface Outcome {
  workspaceId: string;
  objectId: string;
  /** Why it did not take effect; absent: it did. */
  error?: string;
}

/** A replay may decide an object anew. */
const recordOutcomesStatement = `
  insert into outcomes (workspace_id, object_id, error)
  select given.workspace_id, given.object_id, given.error
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as given (workspace_id, object_id, error)
  on conflict (object_id) do update set error = excluded.error, decided_at = excluded.decided_at`;

/** In the transaction that applies the objects: whoever sees an outcome sees its effect. */
export async function recordOutcomes(tx: Connection, outcomes: Outcome[]): Promise<void> {
  await tx.query({
    name: 'record-outcomes',
    text: recordOutcomesStatement,
    values: [
      uuidArray(outcomes, (row) => row.workspaceId),
      uuidArray(outcomes, (row) => row.objectId),
      outcomes.map((row) => row.error),
    ],
  });
}
