import type { Pool } from '../database.ts';

/** By primary key; there are few dead letters. */
const statement = `
  select dead_letters.id, dead_letters.reason
  from dead_letters
  where dead_letters.id = any($1::uuid[])`;

/** Why objects could not be applied, by the id of each that could not. */
export async function findRefused(pool: Pool, objectIds: string[]): Promise<Map<string, string>> {
  const { rows } = await pool.query<{ id: string; reason: string }>({
    name: 'find-refused',
    text: statement,
    values: [objectIds],
  });
  return new Map(rows.map(({ id, reason }) => [id, reason]));
}
