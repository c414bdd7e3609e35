import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from '../identity/pair.ts';

/** The tables in which one profile may have very many rows. */
export type ActivityTable = 'events' | 'purchases';

/** By the index on profiles of the table, then by primary key. */
const statement = (table: ActivityTable) => `
  with slice as materialized (
    select ${table}.workspace_id, ${table}.id
    from ${keysTable}
    join ${table}
      on ${table}.workspace_id = wanted.workspace_id
      and ${table}.profile_id = wanted.id
    limit $3
  )
  delete from ${table} using slice
  where ${table}.workspace_id = slice.workspace_id and ${table}.id = slice.id`;

/** Erases at most `limit` rows of the profiles, and says how many it were. */
export async function eraseActivity(
  tx: Connection,
  table: ActivityTable,
  keys: ProfileKey[],
  limit: number,
): Promise<number> {
  const { rowCount } = await tx.query({
    name: `erase-${table}`,
    text: statement(table),
    values: [...keyValues(keys), limit],
  });
  return rowCount ?? 0;
}
