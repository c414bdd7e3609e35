import type { Connection, Pool } from './database.ts';

/** What is counted hour by hour: one event, one product, or all purchases together, whose name is empty. */
export type SeriesKind = 'event' | 'product' | 'purchases';

/** Longest id of an app that has series of its own, in bytes: it is part of a key. */
const MAX_APP_ID = 255;

/** All apps together, and the one that a row names. */
const apps = (table: string) => `
  cross join lateral (
    select '' union all select ${table}.app_id where ${table}.app_id <> '' and octet_length(${table}.app_id) <= ${MAX_APP_ID}
  ) as apps (app_id)`;

const appsByFunction = (table: string) => `
    cross join lateral unnest(case
      when ${table}.app_id <> '' and octet_length(${table}.app_id) <= ${MAX_APP_ID} then array['', ${table}.app_id]
      else array[''] end) as apps (app_id)`;

/** The hour of a row, in UTC. A fifth of what `date_trunc` takes, which looks its zone up for each row. */
const hour = (table: string) => `date_bin('1 hour', ${table}."time", '0001-01-01T00:00:00Z'::timestamptz)`;

/** Where the rows of `given` come from, and how each has its apps. */
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

/** Each product, and all purchases together. Money is multiplied and added up here, where it is exact. */
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
 * Parts of the statements that record what took effect: they count the rows of `given`, which has a `lane`. Upserts by
 * primary key; the lane is in it, so that no two transactions at once want the same row, and none needs to be sorted.
 */
export const countGivenEvents = countEvents({ from: 'given', apps: apps('given') });
export const countGivenPurchases = countPurchases({
  ...{ from: 'given', apps: apps('given') },
  names: "(values ('product', given.product_id), ('purchases', ''))",
});

/**
 * The same as statements of their own, where tables are distributed: a shard takes them whole if what belongs to a row
 * comes from functions.
 */
export const countedFrom = {
  events: (from: string) => countEvents({ from, apps: appsByFunction('given') }),
  purchases: (from: string) =>
    countPurchases({
      ...{ from, apps: appsByFunction('given') },
      names: "unnest(array['product', 'purchases'], array[given.product_id, ''])",
    }),
};

/** Whose months have gone from the tables: what is left there would be counted as all. */
const isWhole = (owner: string) =>
  `not exists (select from archive_files where archive_files.workspace_id = ${owner})`;

/** Reads all events and purchases of the workspaces that have all of theirs. */
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
 * Counts everything anew that is recorded now. Who records meanwhile waits, from the lock to COMMIT, and then adds to what
 * was counted: a transaction's events are there when its rows here are, or neither. Of workspaces whose months have gone
 * the counts stay as they are.
 *
 * @returns rows of the series
 */
export async function recountSeries(tx: Connection): Promise<number> {
  let rows = 0;
  for (const text of recountStatements) {
    const { command, rowCount } = await tx.query(text);
    if (command === 'INSERT') rows += rowCount ?? 0;
  }
  return rows;
}

/** By primary key, a look-up for each name: a series has as many rows as hours in which something happened. */
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
 * Names of events or products of which anything was ever recorded, in alphabetical order.
 *
 * @param after the name after which they begin; empty: with the first
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

/** Which series, and which stretch of it. */
export interface SeriesPage {
  kind: SeriesKind;
  name: string;
  /** Absent: of all apps together. */
  appId?: string | undefined;
  unit: 'day' | 'hour';
  /** Epoch milliseconds: where the first unit begins, and the last one ends. */
  from: number;
  to: number;
}

/** What happened in one unit, in one currency. */
export interface SeriesPoint {
  /** Epoch milliseconds of the unit's start, UTC. */
  time: number;
  /** Empty of events. */
  currency: string;
  /** Events, or items bought. */
  count: number;
  revenue: number;
}

/** A range of the primary key: a row for each hour, currency and lane. */
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

/** The units in which something happened, in no order. */
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
