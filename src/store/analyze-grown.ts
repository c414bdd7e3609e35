import type { Pool } from './database.ts';

/** Pages of 8 KB up to which a table was so small that all ways into it seemed to cost the same. */
const TINY = 16;

/** Times what it was at the last look. */
const GROWN = 4;

/**
 * Statements are planned once per connection. A plan that was made while a table was next to empty, and known to be so,
 * goes through all of it; Postgres notices within a minute that the table has grown, in which it may have become large. A
 * table that nobody has looked at yet needs no look: Postgres takes it for ten pages.
 */
const statement = `
  select pg_class.oid::regclass::text as name
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace
    and pg_class.relkind = 'r'
    and pg_class.reltuples >= 0
    and pg_class.relpages < ${TINY}
    and pg_relation_size(pg_class.oid) > ${GROWN} * greatest(pg_class.relpages, 1) * current_setting('block_size')::integer`;

/**
 * Counts the tables that were next to empty at the last look and are not now: every plan that was made for them is made
 * anew. What another process counts just now is left to it.
 *
 * @returns their names
 */
export async function analyzeGrown(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>({ name: 'find-grown', text: statement });
  for (const { name } of rows) await pool.query(`analyze (skip_locked) ${name}`);
  return rows.map(({ name }) => name);
}
