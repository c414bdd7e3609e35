import type { Json } from '../../profile/json.ts';
import { integerArray, jsonArray, textArray, timeArray, uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface EventRow {
  workspace_id: string;
  id: string;
  profile_id: string;
  name: string;
  /** ISO 8601. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
  /** Place in the batch. */
  ordinal: number;
}

/**
 * Appends the events, and adds them to the summaries of their profiles. One statement, so that the rows are
 * read once. A summary may be upserted only once: the events are summed up first. Sorted by primary key, so that
 * two lanes that meet in a profile lock in one order.
 */
const statement = `
  with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::text[], $7::jsonb[], $8::integer[])
      as given (workspace_id, id, profile_id, name, "time", app_id, properties, ordinal)
  ), appended as (
    insert into events (workspace_id, id, profile_id, name, "time", app_id, properties)
    select given.workspace_id, given.id, given.profile_id, given.name, given."time", given.app_id, given.properties
    from given
  )
  insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
  select
    given.workspace_id, given.profile_id, given.name, min(given."time"), max(given."time"), count(*),
    $9::timestamptz + max(given.ordinal) * interval '1 microsecond'
  from given
  group by given.workspace_id, given.profile_id, given.name
  order by given.workspace_id, given.profile_id, given.name
  on conflict (workspace_id, profile_id, name) do update set
    first = least(event_summaries.first, excluded.first),
    last = greatest(event_summaries.last, excluded.last),
    count = event_summaries.count + excluded.count,
    updated_at = excluded.updated_at`;

/** @throws 23505 for an event that is there already: no id is applied twice */
export async function recordEvents(tx: Connection, events: EventRow[], now: Date): Promise<void> {
  await tx.query({
    name: 'record-events',
    text: statement,
    values: [
      uuidArray(events, (event) => event.workspace_id),
      uuidArray(events, (event) => event.id),
      uuidArray(events, (event) => event.profile_id),
      textArray(events, (event) => event.name),
      timeArray(events, (event) => event.time),
      textArray(events, (event) => event.app_id),
      jsonArray(events, (event) => event.properties),
      integerArray(events, (event) => event.ordinal),
      now,
    ],
  });
}
