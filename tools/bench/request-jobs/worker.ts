/**
 * The worker of the pipeline with a job per request, for comparison: one multi-row statement per job.
 *
 * With ROWS=few it writes the attributes, events and purchases. Nothing prevents that a job is applied twice. With
 * ROWS=all it also writes what Penstock keeps of them: the applied request, a row for each new user, the sums of each
 * user, and hourly counts. Neither keeps the order of two requests about a user.
 */
import { type Job, Worker } from 'bullmq';
import pg from 'pg';
import type { Json } from '../../../src/profile/json.ts';
import { comparisonSettings, type TrackObject } from '../comparison-web.ts';

export interface RequestJob {
  /** UUID of the request. */
  id: string;
  objects: TrackObject[];
}

const CONCURRENCY = Number(process.env.CONCURRENCY ?? 4);

const settings = comparisonSettings();
const pool = new pg.Pool({ connectionString: settings.databaseUrl, max: CONCURRENCY });

/** Rows as text of JSON arrays: updated users, events and purchases. */
const given = `
  given_profiles as (
    select * from jsonb_to_recordset($1::jsonb) as given (user_id text, attributes jsonb, updates integer)
  ), given_events as materialized (
    select * from jsonb_to_recordset($2::jsonb)
      as given (user_id text, name text, "time" timestamptz, app_id text, properties jsonb)
  ), given_purchases as materialized (
    select * from jsonb_to_recordset($3::jsonb) as given (
      user_id text, product_id text, currency text, price numeric, quantity integer, "time" timestamptz,
      properties jsonb)
  )`;

// Sorted, so that concurrent statements lock the rows in the same order.
const writeObjects = `
  updated as (
    insert into profiles (user_id, attributes, updates)
    select user_id, attributes, updates from given_profiles order by user_id
    on conflict (user_id) do update set
      attributes = profiles.attributes || excluded.attributes,
      updates = profiles.updates + excluded.updates,
      updated_at = now()
  ), appended_events as (
    insert into events (user_id, name, "time", app_id, properties)
    select user_id, name, "time", app_id, properties from given_events
  ), appended_purchases as (
    insert into purchases (user_id, product_id, currency, price, quantity, "time", properties)
    select user_id, product_id, currency, price, coalesce(quantity, 1), "time", properties from given_purchases
  )`;

const writeSums = `
  applied as (
    insert into requests (id) values ($4)
  ), created as (
    insert into profiles (user_id)
    select distinct user_id from (select user_id from given_events union select user_id from given_purchases) as named
    where not exists (select from given_profiles where given_profiles.user_id = named.user_id)
    order by user_id
    on conflict (user_id) do nothing
  ), summed_events as (
    insert into event_summaries as summary (user_id, name, first, last, count)
    select user_id, name, min("time"), max("time"), count(*) from given_events group by user_id, name
    order by user_id, name
    on conflict (user_id, name) do update set
      first = least(summary.first, excluded.first),
      last = greatest(summary.last, excluded.last),
      count = summary.count + excluded.count
  ), summed_purchases as (
    insert into purchase_summaries as summary (user_id, product_id, currency, first, last, count, revenue)
    select user_id, product_id, currency, min("time"), max("time"), sum(coalesce(quantity, 1)),
      sum(price * coalesce(quantity, 1))
    from given_purchases group by user_id, product_id, currency
    order by user_id, product_id, currency
    on conflict (user_id, product_id, currency) do update set
      first = least(summary.first, excluded.first),
      last = greatest(summary.last, excluded.last),
      count = summary.count + excluded.count,
      revenue = summary.revenue + excluded.revenue
  ), hours as (
    select 'event' as kind, name, coalesce(app_id, '') as app_id, date_trunc('hour', "time") as hour, '' as currency,
      1 as count, 0 as revenue
    from given_events
    union all
    select 'purchase', product_id, '', date_trunc('hour', "time"), currency, coalesce(quantity, 1),
      price * coalesce(quantity, 1)
    from given_purchases
  ), counted as (
    insert into hourly_counts as counts (kind, name, app_id, hour, currency, count, revenue)
    select kind, name, app_id, hour, currency, sum(count), sum(revenue) from hours
    group by kind, name, app_id, hour, currency
    order by kind, name, app_id, hour, currency
    on conflict (kind, name, app_id, hour, currency) do update set
      count = counts.count + excluded.count,
      revenue = counts.revenue + excluded.revenue
  )`;

const isComplete = process.env.ROWS === 'all';
const text = `with ${given}, ${writeObjects}${isComplete ? `, ${writeSums}` : ''} select`;

async function apply({ data: { id, objects } }: Job<RequestJob>): Promise<void> {
  const profiles = new Map<string, { user_id: string; attributes: Record<string, Json>; updates: number }>();
  const events: object[] = [];
  const purchases: object[] = [];
  for (const { kind, userId, object } of objects) {
    const { external_id: _id, user_alias: _alias, ...fields } = object;
    if (kind === 'events') events.push({ user_id: userId, ...fields });
    else if (kind === 'purchases') purchases.push({ user_id: userId, ...fields });
    else {
      const entry = profiles.get(userId) ?? { user_id: userId, attributes: {}, updates: 0 };
      profiles.set(userId, entry);
      Object.assign(entry.attributes, fields);
      entry.updates++;
    }
  }
  const rows = [[...profiles.values()], events, purchases].map((some) => JSON.stringify(some));
  await pool.query({ name: 'apply', text, values: isComplete ? [...rows, id] : rows });
}

new Worker<RequestJob>(settings.queue, apply, {
  connection: { url: settings.redisUrl },
  concurrency: CONCURRENCY,
});
