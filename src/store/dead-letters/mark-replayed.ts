import type { Connection } from '../database.ts';

// Locks in id order, as every statement on dead letters does.
const statement = `
with applied as (
  select dead_letters.id from dead_letters where dead_letters.id = any($1::uuid[]) order by dead_letters.id for update
)
update dead_letters
   set state = 'replayed', replayed_at = now()
  from applied
 where dead_letters.id = applied.id`;

/** Settles the dead letters whose objects have now taken effect, in the transaction that applies their replay. */
export async function markReplayed(connection: Connection, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await connection.query({ name: 'mark-replayed', text: statement, values: [ids] });
}
