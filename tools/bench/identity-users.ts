import type pg from 'pg';
import { uuidAt } from './uuid-at.ts';

/** Inserts users into the tables as if they had been tracked: `<prefix>-<number>`, each with one event. */
const insertUsers = `
  with made as (
    insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
    select workspaces.id, ${uuidAt('now()')}, case when $3 then $1 || '-' || number end, '{"plan": "pro"}', now(), now()
    from workspaces, generate_series(1, $2::integer) as number
    returning workspace_id, id
  ), numbered as (
    select made.*, row_number() over () as number from made
  ), aliased as (
    insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
    select workspace_id, 'bench', $1 || '-' || number, id, now() from numbered where not $3
  ), summed as (
    insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
    select workspace_id, id, 'seen', now(), now(), 1, now() from numbered
  )
  insert into events (workspace_id, id, profile_id, name, "time")
  select workspace_id, ${uuidAt('now()')}, id, 'seen', now() from numbered`;

const insertEvents = `
  with owner as (select workspace_id, id from profiles where external_id = $1), appended as (
    insert into events (workspace_id, id, profile_id, name, "time")
    select owner.workspace_id, ${uuidAt('now()')}, owner.id, 'seen', now() from owner, generate_series(2, $2::integer)
  )
  update event_summaries set count = $2 from owner where event_summaries.profile_id = owner.id`;

/**
 * @param identified whether the users have an external id; otherwise they only have an alias with the label
 * `bench`
 */
export async function makeUsers(
  pool: pg.Pool,
  prefix: string,
  count: number,
  identified = true,
): Promise<void> {
  await pool.query(insertUsers, [prefix, count, identified]);
}

/** Adds events to a user up to the given total. */
export async function giveEvents(pool: pg.Pool, externalId: string, events: number): Promise<void> {
  if (events > 1) await pool.query(insertEvents, [externalId, events]);
}
