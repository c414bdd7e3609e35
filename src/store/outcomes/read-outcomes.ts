import type { Pool } from '../database.ts';

/** How an object has ended; without an error it took effect. */
export interface Outcome {
  object_id: string;
  error: string | null;
}

/** By primary key; locks nothing. */
const statement = `
  select outcomes.object_id, outcomes.error
  from outcomes
  where outcomes.object_id = any($1::uuid[])`;

/** Those of the objects that have ended by now. */
export async function readOutcomes(pool: Pool, objectIds: string[]): Promise<Outcome[]> {
  const { rows } = await pool.query<Outcome>({
    name: 'read-outcomes',
    text: statement,
    values: [objectIds],
  });
  return rows;
}
