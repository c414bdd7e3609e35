import type { Pool } from '../database.ts';

// A second claim at the same time waits for the row, then no longer finds it waiting. Locks in id order.
const statement = `
with waiting as (
  select dead_letters.id
    from dead_letters
   where dead_letters.id = any($1::uuid[]) and dead_letters.state = 'waiting'
   order by dead_letters.id
     for update
)
update dead_letters
   set state = 'replaying', replays = dead_letters.replays + 1
  from waiting
 where dead_letters.id = waiting.id`;

/** Claims those of the dead letters that wait: each gets the number of its next replay. */
export async function claimWaitingForReplay(pool: Pool, ids: readonly string[]): Promise<void> {
  await pool.query({ name: 'claim-waiting-for-replay', text: statement, values: [ids] });
}
