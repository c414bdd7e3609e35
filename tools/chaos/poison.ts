import type { Pool } from 'pg';
import { makeTriggers } from '../../test/setup/make-triggers.ts';

/**
 * Makes the store refuse every event with the name `poison`, like an object that no statement can store.
 *
 * @param reason error message
 */
export async function refusePoison(pool: Pool, reason = 'the store refuses poison'): Promise<void> {
  await makeTriggers(pool, [
    `create function refuse_poison() returns trigger language plpgsql as $$
    begin
      raise exception '${reason}';
    end $$`,
    `create trigger refuse_poison before insert on events
      for each row when (new.name = 'poison') execute function refuse_poison()`,
  ]);
}

export async function takePoison(pool: Pool): Promise<void> {
  await makeTriggers(pool, ['drop trigger refuse_poison on events']);
}
