import type { Connection, Pool } from './database.ts';

/** Kind of an hourly series: one event, one product, or all purchases together (with an empty name). */
export type SeriesKind = 'event' | 'product' | 'purchases';

/** Maximum length in bytes of an app id that gets its own series. It is part of a key. */
const MAX_APP_ID = 255;

/** SQL: one row for all apps together (empty id), and one for the app of the row. */
const apps = (table: string) => `
  cross join lateral (
    select '' union all select ${table}.app_id where ${table}.app_id <> '' and octet_length(${table}.app_id) <= ${MAX_APP_ID}
  ) as apps (app_id)`;

const appsByFunction = (table: string) => `
    cross join lateral unnest(case
      when ${table}.app_id <> '' and octet_length(${table}.app_id) <= ${MAX_APP_ID} then array['', ${table}.app_id]
      else array[''] end) as apps (app_id)`;

/**
 * SQL of the hour of a row in UTC. Takes a fifth of the time of `date_trunc`, which looks up the time zone
 * for each row.
 */
const hour = (table: string) => `date_bin('1 hour', ${table}."time", '0001-01-01T00:00:00Z'::timestamptz)`;

/** SQL for the source of the rows of `given`, and for their apps. */
interface Counted {
  from: string;
  apps: string;
}

const countEvents = (given: Counted) => `
    insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count)
    select given.workspace_id, 'event', given.name, apps.app_id, ${hour('given')}, '', given.lane, count(*)
    from ${given.from}${given.apps}
    group by given.workspace_id, given.name, apps.app_id, 5, given.lane
    on conflict (workspace_id, kind, name, app_id, hour, currency, lane) do update set
      count = activity_series.count + excluded.count`;

/**
 * Counts each product, and all purchases together. Revenue is calculated here, with exact numeric arithmetic.
 */
const countPurchases = (given: Counted & { names: string }) => `
    insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count, revenue)
    select given.workspace_id, names.kind, names.name, apps.app_id, ${hour('given')}, given.currency, given.lane,
      sum(given.quantity), sum(given.price * given.quantity)
    from ${given.from}
    cross join lateral ${given.names} as names (kind, name)${given.apps}
    group by given.workspace_id, names.kind, names.name, apps.app_id, 5, given.currency, given.lane
    on conflict (workspace_id, kind, name, app_id, hour, currency, lane) do update set
      count = activity_series.count + excluded.count,
      revenue = activity_series.revenue + excluded.revenue`;

/**
 * Parts of the statements that record applied objects: they count the rows of `given`, which has a column
 * `lane`. They upsert by primary key. The key contains the lane, so that concurrent transactions never update
 * the same row and rows do not have to be sorted.
 */
export const countGivenEvents = countEvents({ from: 'given', apps: apps('given') });
export const countGivenPurchases = countPurchases({
  ...{ from: 'given', apps: apps('given') },
  names: "(values ('product', given.product_id), ('purchases', ''))",
});

/**
 * Separate statements for a distributed Postgres. A shard can run them as a whole if the values that belong
 * to a row come from functions.
 */
export const countedFrom = {
  events: (from: string) => countEvents({ from, apps: appsByFunction('given') }),
  purchases: (from: string) =>
    countPurchases({
      ...{ from, apps: appsByFunction('given') },
      names: "unnest(array['product', 'purchases'], array[given.product_id, ''])",
    }),
};

/**
 * SQL condition that no month of the workspace was removed from the tables. Otherwise a count would miss the
 * removed rows.
 */
const isWhole = (owner: string) =>
  `not exists (select from archive_files where archive_files.workspace_id = ${owner})`;

/** Only one recount runs: others would lock the table again after it, for the same result. */
const lockRecountStatement = "select pg_try_advisory_xact_lock(hashtext('penstock.recount')) as mine";

/** Reads all events and purchases of the workspaces whose rows are complete. */
const recountStatements = [
  'lock table activity_series in share row exclusive mode',
  `delete from activity_series where ${isWhole('activity_series.workspace_id')}`,
  `
  insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count)
  select events.workspace_id, 'event', events.name, apps.app_id, date_trunc('hour', events."time", 'UTC'), '', -1, count(*)
  from events${appsByFunction('events')}
  where ${isWhole('events.workspace_id')}
  group by 1, 2, 3, 4, 5`,
  `
  insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count, revenue)
  select purchases.workspace_id, names.kind, names.name, apps.app_id, date_trunc('hour', purchases."time", 'UTC'),
    purchases.currency, -1, sum(purchases.quantity), sum(purchases.price * purchases.quantity)
  from purchases
  cross join lateral unnest(array['product', 'purchases'], array[purchases.product_id, '']) as names (kind, name)${appsByFunction('purchases')}
  where ${isWhole('purchases.workspace_id')}
  group by 1, 2, 3, 4, 5, 6`,
];

/**
 * Recounts all series from the stored rows. Transactions that record events in the meantime wait from the
 * lock until COMMIT, and then add to the new counts: a transaction's events and its counts become visible
 * together. Workspaces with removed months keep their counts.
 *
 * @returns the number of rows of the series; undefined while another process recounts
 */
export async function recountSeries(tx: Connection): Promise<number | undefined> {
  const { rows: locks } = await tx.query<{ mine: boolean }>(lockRecountStatement);
  if (!locks[0]!.mine) return undefined;
  let rows = 0;
  for (const text of recountStatements) {
    const { command, rowCount } = await tx.query(text);
    if (command === 'INSERT') rows += rowCount ?? 0;
  }
  return rows;
}

/**
 * Reads by primary key, with one lookup per name, because a series has one row for each hour with activity.
 */
const listNamesStatement = `
  with recursive names as (
    (
      select activity_series.name
      from activity_series
      where activity_series.workspace_id = $1::uuid and activity_series.kind = $2::text
        and activity_series.name > $5::text
      order by activity_series.workspace_id, activity_series.kind, activity_series.name
      limit 1
    )
    union all
    select following.name
    from names
    cross join lateral (
      select activity_series.name
      from activity_series
      where activity_series.workspace_id = $1::uuid and activity_series.kind = $2::text
        and activity_series.name > names.name
      order by activity_series.workspace_id, activity_series.kind, activity_series.name
      limit 1
    ) as following
  )
  select names.name from names limit $3::integer offset $4::integer`;

/**
 * Returns names of events or products for which anything was ever recorded, in alphabetical order.
 *
 * @param after name after which the list begins; empty for the start
 */
export async function listNames(
  pool: Pool,
  workspaceId: string,
  { kind, limit, offset, after }: { kind: 'event' | 'product'; limit: number; offset: number; after: string },
): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>({
    name: 'list-names',
    text: listNamesStatement,
    values: [workspaceId, kind, limit, offset, after],
  });
  return rows.map(({ name }) => name);
}

/** A series and a range of it. */
export interface SeriesPage {
  kind: SeriesKind;
  name: string;
  /** Id of an app; the sum of all apps if absent. */
  appId?: string | undefined;
  unit: 'day' | 'hour';
  /** Epoch milliseconds: start of the first unit, and end of the last one. */
  from: number;
  to: number;
}

/** Counts of one unit in one currency. */
export interface SeriesPoint {
  /** Epoch milliseconds of the unit's start, UTC. */
  time: number;
  /** Empty for events. */
  currency: string;
  /** Number of events, or of purchased items. */
  count: number;
  revenue: number;
}

/** Reads a range of the primary key: one row per hour, currency and lane. */
const readSeriesStatement = `
  select
    extract(epoch from date_trunc($5::text, activity_series.hour, 'UTC'))::float8 * 1000 as time,
    activity_series.currency,
    sum(activity_series.count)::float8 as count,
    sum(activity_series.revenue)::float8 as revenue
  from activity_series
  where activity_series.workspace_id = $1::uuid
    and activity_series.kind = $2::text
    and activity_series.name = $3::text
    and activity_series.app_id = $4::text
    and activity_series.hour >= $6::timestamptz
    and activity_series.hour < $7::timestamptz
  group by 1, 2`;

/** Returns the units with activity, unordered. */
export async function readSeries(
  pool: Pool,
  workspaceId: string,
  { kind, name, appId = '', unit, from, to }: SeriesPage,
): Promise<SeriesPoint[]> {
  const bounds = [from, to].map((time) => new Date(time).toISOString());
  const { rows } = await pool.query<SeriesPoint>({
    name: 'read-series',
    text: readSeriesStatement,
    values: [workspaceId, kind, name, appId, unit, ...bounds],
  });
  return rows;
}
