import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from '../identity/pair.ts';

/** By the index purchases_profile, then by primary key. */
const statement = `
  with slice as materialized (
    select purchases.workspace_id, purchases.id
    from ${keysTable}
    join purchases
      on purchases.workspace_id = wanted.workspace_id
      and purchases.profile_id = wanted.id
    limit $3
  )
  delete from purchases using slice
  where purchases.workspace_id = slice.workspace_id and purchases.id = slice.id`;

/** Erases at most `limit` purchases of the profiles, and says how many it were. */
export async function erasePurchases(tx: Connection, keys: ProfileKey[], limit: number): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'erase-purchases',
    text: statement,
    values: [...keyValues(keys), limit],
  });
  return rowCount ?? 0;
}
