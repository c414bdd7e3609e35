import type { Pool } from 'pg';
import { inTransaction } from '../../src/store/database.ts';

/**
 * From now on the store refuses every event of the name `poison`, as it would an object that no statement can take.
 *
 * @param reason what it says
 */
export async function refusePoison(pool: Pool, reason = 'the store refuses poison'): Promise<void> {
  await changeTriggers(pool, [
    `create function refuse_poison() returns trigger language plpgsql as $$
    begin
      raise exception '${reason}';
    end $$`,
    `create trigger refuse_poison before insert on events
      for each row when (new.name = 'poison') execute function refuse_poison()`,
  ]);
}

export async function takePoison(pool: Pool): Promise<void> {
  await changeTriggers(pool, ['drop trigger refuse_poison on events']);
}

/** Where tables are distributed triggers are of their shards, and each statement is sent to them by itself. */
async function changeTriggers(pool: Pool, statements: string[]): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query('set local citus.enable_unsafe_triggers = on');
    for (const statement of statements) await tx.query(statement);
  });
}
