import { uuidArray } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** Deletes a range of the primary key: an object's id is a UUIDv7 from before its outcome. */
const forgetOutcomesStatement = `
  delete from outcomes
  where outcomes.object_id < uuid_v7_floor(now() - interval '1 day')
    and outcomes.decided_at < now() - interval '1 day'`;

/** Deletes outcomes older than one day, for which no request is waiting any longer. */
export async function forgetOutcomes(pool: Pool): Promise<void> {
  await pool.query(forgetOutcomesStatement);
}

/** Outcome of an object. Without an error, the object was applied. */
interface ReadOutcome {
  objectId: string;
  error: string | null;
}

/** Reads by primary key; takes no lock. */
const readOutcomesStatement = `
  select outcomes.object_id as "objectId", outcomes.error
  from outcomes
  where outcomes.object_id = any($1::uuid[])`;

/** Returns the outcomes of those objects that have one. */
export async function readOutcomes(pool: Pool, objectIds: string[]): Promise<ReadOutcome[]> {
  const { rows } = await pool.query<ReadOutcome>({
    name: 'read-outcomes',
    text: readOutcomesStatement,
    values: [objectIds],
  });
  return rows;
}

/** Outcome of an object for which a request is waiting. */
export interface Outcome {
  workspaceId: string;
  objectId: string;
  /** Reason why the object was not applied. Absent if it was. */
  error?: string;
}

/** A replay may change the outcome of an object. */
const recordOutcomesStatement = withCitusForm(`
  insert into outcomes (workspace_id, object_id, error)
  select given.workspace_id, given.object_id, given.error
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as given (workspace_id, object_id, error)
  on conflict (object_id) do update set error = excluded.error, decided_at = excluded.decided_at`);

/**
 * Records outcomes in the transaction that applies the objects, so that an outcome becomes visible together
 * with its effect.
 */
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
