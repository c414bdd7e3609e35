import { NIL_UUID } from '../platform/ids.ts';
import type { Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** Maximum number of users and addresses that one pass erases. They are marked by one statement. */
const SUBJECTS = 20_000;

/**
 * Returns SQL that requests the erasure of the rows of the CTE `from`, with the columns workspace_id, kind,
 * subject, up_to and dropped_at. A new row replaces an earlier row of the same address, which then waits for
 * the next pass.
 */
export const requestErasures = (from: string) => `
  log_erasures as (
    insert into stream_erasures (workspace_id, subject_kind, subject, up_to, dropped_at)
    select ${from}.workspace_id, ${from}.kind, ${from}.subject, ${from}.up_to, ${from}.dropped_at
    from ${from}
    order by 1, 2, 3
    on conflict (workspace_id, subject_kind, subject) do update
    set up_to = excluded.up_to, dropped_at = excluded.dropped_at, since = excluded.since, in_pass = false
  ), log_passes as (
    insert into stream_erasure_passes (workspace_id)
    select distinct ${from}.workspace_id
    from ${from}
    order by 1
    on conflict (workspace_id) do nothing
  )`;

/** The table has one row for each workspace with streams from which a user was deleted. */
const selectWorkspacesStatement = `
  select stream_erasure_passes.workspace_id::text as id
  from stream_erasure_passes
  order by stream_erasure_passes.workspace_id`;

/** Returns the workspaces for which an erasure from the stream log was ever requested. */
export async function selectErasingWorkspaces(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ id: string }>(selectWorkspacesStatement);
  return rows.map(({ id }) => id);
}

/**
 * Updates by primary keys. Log rows with a subject were committed before the subject was recorded, or by the
 * transaction that recorded it, so the largest visible id is after all of them.
 */
const beginStatement = withCitusForm(`
  with due as materialized (
    select stream_erasure_passes.workspace_id
    from stream_erasure_passes
    where stream_erasure_passes.workspace_id = $1::uuid
      and stream_erasure_passes.reached is null
      and exists (
        select from stream_erasures
        where stream_erasures.workspace_id = $1::uuid
          and stream_erasures.since <= now() - make_interval(secs => $2::float8))
    for update skip locked
  ), chosen as materialized (
    select stream_erasures.workspace_id, stream_erasures.subject_kind, stream_erasures.subject
    from due
    join stream_erasures on stream_erasures.workspace_id = due.workspace_id
    limit ${SUBJECTS}
  ), marked as (
    update stream_erasures set in_pass = true
    from chosen
    where stream_erasures.workspace_id = chosen.workspace_id
      and stream_erasures.subject_kind = chosen.subject_kind
      and stream_erasures.subject = chosen.subject
  )
  update stream_erasure_passes
  set reached = 0, up_to = coalesce((
    select max(stream_log.id) from stream_log where stream_log.workspace_id = $1::uuid), 0)
  from due
  where stream_erasure_passes.workspace_id = due.workspace_id`);

/** Starts erasing from the log of a workspace if the oldest subject has waited for `waitedSeconds`. */
export async function beginErasurePass(
  pool: Pool,
  workspaceId: string,
  waitedSeconds: number,
): Promise<void> {
  await pool.query({ text: beginStatement, values: [workspaceId, waitedSeconds] });
}

/**
 * Updates by a range of the primary key of the log, and the primary key of stream_erasures. An erased entry
 * keeps its position and has empty details. Entries that inform destinations of a deleted user stay, see
 * docs/streams.md.
 */
const eraseStatement = withCitusForm(`
  with pass as materialized (
    select stream_erasure_passes.workspace_id, stream_erasure_passes.reached, stream_erasure_passes.up_to
    from stream_erasure_passes
    where stream_erasure_passes.workspace_id = $1::uuid and stream_erasure_passes.reached is not null
    for update skip locked
  ), slice as materialized (
    select hit.*
    from pass
    cross join lateral (
      select
        stream_log.workspace_id, stream_log.id, stream_log.at, stream_log.kinds, stream_log.profile_ids,
        stream_log.details
      from stream_log
      where stream_log.workspace_id = pass.workspace_id
        and stream_log.id > pass.reached
        and stream_log.id <= pass.up_to
      order by stream_log.id
      limit $2
    ) as hit
  ), hits as (
    select slice.workspace_id, slice.id, entry.number - 1 as place
    from slice
    cross join lateral unnest(slice.profile_ids) with ordinality as entry (profile_id, number)
    join stream_erasures
      on stream_erasures.workspace_id = slice.workspace_id
      and stream_erasures.subject_kind = 'profile'
      and stream_erasures.subject = entry.profile_id::text
      and stream_erasures.in_pass
    where slice.details is not null
    union all
    select slice.workspace_id, slice.id, entry.key::bigint
    from slice
    cross join lateral json_each(slice.details) as entry
    cross join lateral (values ('email', entry.value ->> 'email'), ('phone', entry.value ->> 'phone'))
      as named (kind, address)
    join stream_erasures
      on stream_erasures.workspace_id = slice.workspace_id
      and stream_erasures.subject_kind = named.kind
      and stream_erasures.subject = named.address
      and stream_erasures.in_pass
    where '${NIL_UUID}'::uuid = any(slice.profile_ids)
      and slice.profile_ids[entry.key::integer + 1] = '${NIL_UUID}'::uuid
      and (
        slice.id <= stream_erasures.up_to
        or slice.at = stream_erasures.dropped_at
        and entry.key::integer < (
          select max(other.key::integer)
          from json_each(slice.details) as other
          where substr(slice.kinds, other.key::integer + 1, 1) = 'i' and other.value ->> 'change' = 'deleted'))
  ), changed as materialized (
    select hits.workspace_id, hits.id, array_agg(hits.place::text) as places
    from hits
    group by hits.workspace_id, hits.id
  ), erased as (
    update stream_log
    set details = (
      select json_object_agg(
        entry.key,
        case
          when entry.key = any(changed.places)
            and (
              substr(stream_log.kinds, entry.key::integer + 1, 1) <> 'i'
              or entry.value ->> 'change' not in ('deleted', 'merged_into', 'merged'))
          then '{}'::json
          else entry.value
        end)
      from json_each(stream_log.details) as entry)
    from changed
    where stream_log.workspace_id = changed.workspace_id and stream_log.id = changed.id
  ), finished as (
    delete from stream_erasures using pass
    where stream_erasures.workspace_id = pass.workspace_id
      and stream_erasures.in_pass
      and (select count(*) from slice) < $2
  )
  update stream_erasure_passes
  set reached = case when (select count(*) from slice) = $2 then (select max(slice.id) from slice) end
  from pass
  where stream_erasure_passes.workspace_id = pass.workspace_id
  returning stream_erasure_passes.reached is not null as "isRunning"`);

/**
 * Erases the subjects of the running pass from the next `limit` rows of the log.
 *
 * @returns false if the pass has finished, no pass is running, or another worker is processing this slice
 */
export async function eraseFromLog(pool: Pool, workspaceId: string, limit: number): Promise<boolean> {
  const { rows } = await pool.query<{ isRunning: boolean }>({
    text: eraseStatement,
    values: [workspaceId, limit],
  });
  return rows[0]?.isRunning ?? false;
}

/** Reads by primary keys. */
const isWaitingStatement = `
  select exists (
    select from stream_erasures where stream_erasures.workspace_id = $1::uuid) as "isWaiting"`;

/** Returns whether the log of a workspace may still have details of a deleted user. */
export async function isErasureWaiting(pool: Pool, workspaceId: string): Promise<boolean> {
  const { rows } = await pool.query<{ isWaiting: boolean }>({
    text: isWaitingStatement,
    values: [workspaceId],
  });
  return rows[0]!.isWaiting;
}
