import type { Json, JsonText } from '../profile/json.ts';
import { mergeRules } from '../profile/merge-rules.ts';
import { countedFrom, countGivenEvents } from './activity-series.ts';
import { integerArray, jsonArray, textArray, timeArray, uuidArray } from './arrays.ts';
import {
  elementsOf,
  integerColumn,
  jsonColumn,
  textColumn,
  timeColumn,
  type UuidElements,
  uuidColumn,
} from './columns.ts';
import type { Connection } from './database.ts';
import { type MergePair, mergedColumns, pairsTable, pairValues } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

export interface EventRow {
  workspaceId: string;
  id: string;
  profileId: string;
  name: string;
  /** ISO 8601. */
  time: string;
  appId: string | undefined;
  properties: Record<string, Json> | JsonText | undefined;
  /** Position in the batch. */
  ordinal: number;
  /** Lane from which the event was applied. */
  lane: number;
}

/** Ids of sent events or purchases, in order. */
export interface ActivityIds {
  profileIds: UuidElements;
  ids: UuidElements;
}

/** Events or purchases that were sent to Postgres. */
export interface Recorded extends ActivityIds {
  /** Resolves when they are stored. */
  stored: Promise<unknown>;
}

/** Appends the events of `given`. */
const appendEvents = (given: string) => `
    insert into events (workspace_id, id, profile_id, name, "time", app_id, properties)
    select given.workspace_id, given.id, given.profile_id, given.name, given."time", given.app_id, given.properties
    from ${given}`;

/**
 * Adds the events of `given` to the summaries of their profiles. A row can be upserted only once per
 * statement, so the events are aggregated first. Sorted by primary key, so that two lanes with the same
 * profile lock in the same order.
 *
 * @param now parameter with the time
 */
const summarizeEvents = (given: string, now: string) => `
  insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
  select
    given.workspace_id, given.profile_id, given.name, min(given."time"), max(given."time"), count(*),
    ${now}::timestamptz + max(given.ordinal) * interval '1 microsecond'
  from ${given}
  group by given.workspace_id, given.profile_id, given.name
  order by given.workspace_id, given.profile_id, given.name
  on conflict (workspace_id, profile_id, name) do update set
    first = least(event_summaries.first, excluded.first),
    last = greatest(event_summaries.last, excluded.last),
    count = event_summaries.count + excluded.count,
    updated_at = excluded.updated_at`;

/**
 * Appends the events, and adds them to the summaries of their profiles and to the hourly series. A single
 * statement, so that the rows are parsed once.
 */
const recordEventsStatement = withCitusForm(`
  with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::text[], $7::jsonb[],
      $8::integer[], $9::integer[])
      as given (workspace_id, id, profile_id, name, "time", app_id, properties, ordinal, lane)
  ), appended as (${appendEvents('given')}
  ), counted as (${countGivenEvents}
  )${summarizeEvents('given', '$10')}`);

/**
 * Records events.
 *
 * @returns their ids, which are available before the result
 * @throws 23505 if the profile already has one of the events: no id is applied twice
 */
export function recordEvents(tx: Connection, events: EventRow[], now: string): Recorded {
  const rows = events.length;
  const [workspaceIds, ids, profileIds] = [uuidColumn(rows), uuidColumn(rows), uuidColumn(rows)];
  const [names, appIds] = [textColumn(rows), textColumn(rows)];
  const [times, properties] = [timeColumn(rows), jsonColumn(rows)];
  const [ordinals, lanes] = [integerColumn(rows), integerColumn(rows)];
  for (const event of events) {
    workspaceIds.addUuid(event.workspaceId);
    ids.addUuid(event.id);
    profileIds.addUuid(event.profileId);
    names.addText(event.name);
    times.addTime(event.time);
    appIds.addText(event.appId);
    properties.addJson(event.properties);
    ordinals.addInteger(event.ordinal);
    lanes.addInteger(event.lane);
  }
  const columns = [workspaceIds, ids, profileIds, names, times, appIds, properties, ordinals, lanes];
  const values = columns.map((column) => column.toParameter());
  const stored = tx.query({
    name: 'record-events',
    text: recordEventsStatement,
    values: [...values, now],
  });
  return { profileIds: elementsOf(values[2]!), ids: elementsOf(values[1]!), stored };
}

const appendEventsStatement = withCitusForm(
  appendEvents(`unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[],
      $6::text[], $7::jsonb[]) as given (workspace_id, id, profile_id, name, "time", app_id, properties)`),
);

const summarizeEventsStatement = withCitusForm(
  summarizeEvents(
    `unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::integer[])
    as given (workspace_id, profile_id, name, "time", ordinal)`,
    '$6',
  ),
);

const countEventsStatement = withCitusForm(
  countedFrom.events(`unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::integer[])
    as given (workspace_id, name, "time", app_id, lane)`),
);

/**
 * Same as `recordEvents` with one statement per table, for a distributed Postgres. A statement that writes
 * several tables would go through every node, and the transaction would need two phases to commit.
 *
 * @throws 23505 if the profile already has one of the events: no id is applied twice
 */
export function recordEventsApart(tx: Connection, events: EventRow[], now: string): Recorded {
  const owners = uuidArray(events, (event) => event.workspaceId);
  const profiles = uuidArray(events, (event) => event.profileId);
  const ids = uuidArray(events, (event) => event.id);
  const names = textArray(events, (event) => event.name);
  const times = timeArray(events, (event) => event.time);
  const apps = textArray(events, (event) => event.appId);
  const stored = Promise.all([
    tx.query({
      name: 'append-events',
      text: appendEventsStatement,
      values: [
        ...[owners, ids, profiles, names, times, apps],
        jsonArray(events, (event) => event.properties),
      ],
    }),
    tx.query({
      name: 'summarize-events',
      text: summarizeEventsStatement,
      values: [owners, profiles, names, times, integerArray(events, (event) => event.ordinal), now],
    }),
    tx.query({
      name: 'count-events',
      text: countEventsStatement,
      values: [owners, names, times, apps, integerArray(events, (event) => event.lane)],
    }),
  ]);
  return { profileIds: elementsOf(profiles), ids: elementsOf(ids), stored };
}

/**
 * Moves up to $4 rows of each merged profile to the kept one, by primary key. Sorted, so that two lanes lock
 * in the same order.
 */
const mergeEventSummariesStatement = withCitusForm(`
  with slice as materialized (
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, summary.name
    from ${pairsTable}
    cross join lateral (
      select event_summaries.name
      from event_summaries
      where event_summaries.workspace_id = pairs.workspace_id
        and event_summaries.profile_id = pairs.merged_id
      limit $4
    ) as summary
  ), taken as (
    delete from event_summaries using slice
    where event_summaries.workspace_id = slice.workspace_id
      and event_summaries.profile_id = slice.merged_id
      and event_summaries.name = slice.name
    returning event_summaries.*, slice.kept_id
  )
  insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
  select
    taken.workspace_id, taken.kept_id, taken.name,
    min(taken.first), max(taken.last), sum(taken.count), max(taken.updated_at)
  from taken
  group by taken.workspace_id, taken.kept_id, taken.name
  order by taken.workspace_id, taken.kept_id, taken.name
  on conflict (workspace_id, profile_id, name) do update set
    ${mergedColumns(mergeRules.event_summaries, { kept: 'event_summaries', merged: 'excluded' })}`);

/** Merges event summaries. @returns the number of rows of kept profiles that were written */
export async function mergeEventSummaries(
  tx: Connection,
  pairs: MergePair[],
  rowsOfEach: number,
): Promise<number> {
  const values = [...pairValues(pairs), rowsOfEach];
  const { rowCount } = await tx.query({
    name: 'merge-event-summaries',
    text: mergeEventSummariesStatement,
    values,
  });
  return rowCount ?? 0;
}

/** Maximum number of apps of a user that are read. Far more than a user has. */
const MAX_APPS = 500;

/**
 * Updates by primary key. Sessions of an app that the kept profile has not used are not merged. The limit
 * keeps the planner from scanning a whole workspace.
 */
const mergeAppSummariesStatement = withCitusForm(`
  with merged as materialized (
    select pairs.kept_id, hit.*
    from ${pairsTable}
    cross join lateral (
      select app_summaries.*
      from app_summaries
      where app_summaries.workspace_id = pairs.workspace_id
        and app_summaries.profile_id = pairs.merged_id
      limit ${MAX_APPS}
    ) as hit
  )
  update app_summaries set
    ${mergedColumns(mergeRules.app_summaries, { kept: 'app_summaries', merged: 'merged' })}
  from merged
  where app_summaries.workspace_id = merged.workspace_id
    and app_summaries.profile_id = merged.kept_id
    and app_summaries.app_id = merged.app_id`);

export async function mergeAppSummaries(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({
    name: 'merge-app-summaries',
    text: mergeAppSummariesStatement,
    values: pairValues(pairs),
  });
}
