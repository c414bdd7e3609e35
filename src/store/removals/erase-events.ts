import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from '../identity/pair.ts';

/** By the index events_profile, then by primary key. */
const statement = `
  with slice as materialized (
    select events.workspace_id, events.id
    from ${keysTable}
    join events
      on events.workspace_id = wanted.workspace_id
      and events.profile_id = wanted.id
    limit $3
  )
  delete from events using slice
  where events.workspace_id = slice.workspace_id and events.id = slice.id`;

/** Erases at most `limit` events of the profiles, and says how many it were. */
export async function eraseEvents(tx: Connection, keys: ProfileKey[], limit: number): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'erase-events',
    text: statement,
    values: [...keyValues(keys), limit],
  });
  return rowCount ?? 0;
}
