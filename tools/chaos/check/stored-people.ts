import type pg from 'pg';
import { NIL_UUID } from '../../../src/platform/ids.ts';
import { formOf } from '../../generate/citus-forms.ts';
import type { Journal } from '../load/journal.ts';

/** A person in the store. */
export interface StoredPerson {
  name: string;
  externalId: string | null;
  aliases: string[];
  email: string | null;
  phone: string | null;
  custom: Record<string, unknown> & { seq: number; log: number[]; points: number };
  /** `name count first last`, and `product currency count revenue`; times are in epoch seconds. */
  events: string[];
  purchases: string[];
}

export interface StoredPeople {
  people: Map<string, StoredPerson>;
  /** Names that belong to more than one profile. */
  twins: string[];
  /** Number of stored rows of each event and purchase, by object number; at most 255. */
  rows: Uint8Array;
  /** Object numbers that no request has, and rows without a number. */
  strangers: string[];
  /** Rows by profile and name that differ from their summary. */
  wrongSums: string[];
  deadLetters: { object: string; reason: string }[];
}

/** Rows that are fetched at a time, which limits the memory. */
const PAGE = 50_000;

/** Reads a workspace in one snapshot, in which every envelope is applied completely or not at all. */
export async function readPeople(
  pool: pg.Pool,
  workspaceId: string,
  journal: Journal,
): Promise<StoredPeople> {
  const client = await pool.connect();
  const stored: StoredPeople = {
    people: new Map(),
    twins: [],
    rows: new Uint8Array(journal.objects),
    strangers: [],
    wrongSums: [],
    deadLetters: [],
  };
  try {
    await client.query('begin isolation level repeatable read read only');
    for await (const row of pages<StoredPerson>(client, peopleStatement, workspaceId)) {
      const person = { ...row, name: row.custom.name as string };
      if (!person.name) stored.strangers.push(`a profile without a name: ${JSON.stringify(row)}`);
      else if (stored.people.has(person.name)) stored.twins.push(person.name);
      else stored.people.set(person.name, person);
    }
    for (const table of ['events', 'purchases']) {
      const statement = `select (properties ->> 'n')::integer as n from ${table} where workspace_id = $1`;
      for await (const { n } of pages<{ n: number | null }>(client, statement, workspaceId)) {
        if (n === null || n >= journal.objects)
          stored.strangers.push(`a row of ${table} with the number ${n}`);
        else if (stored.rows[n]! < 255) stored.rows[n]!++;
      }
    }
    const { rows: sums } = await client.query(wrongSumsStatement, [workspaceId]);
    stored.wrongSums = sums.map((row) => JSON.stringify(row));
    for (const owner of [workspaceId, NIL_UUID])
      stored.deadLetters.push(...(await client.query(lettersStatement, [owner])).rows);
    await client.query('commit');
    return stored;
  } finally {
    client.release();
  }
}

async function* pages<Row>(
  client: pg.PoolClient,
  statement: string,
  workspaceId: string,
): AsyncGenerator<Row> {
  // `declare cursor` accepts no parameters.
  await client.query(`declare page cursor for ${statement.replaceAll('$1', `'${workspaceId}'`)}`);
  for (;;) {
    const { rows } = await client.query(`fetch ${PAGE} from page`);
    if (rows.length === 0) break;
    yield* rows as Row[];
  }
  await client.query('close page');
}

const peopleStatement = `
select external_id as "externalId", email, phone, custom_attributes as custom,
  array(select alias_label || ':' || alias_name from user_aliases as own
    where own.workspace_id = profiles.workspace_id and own.profile_id = profiles.id order by 1) as aliases,
  array(select name || ' ' || count || ' ' || extract(epoch from first)::bigint || ' ' || extract(epoch from last)::bigint
    from event_summaries as own
    where own.workspace_id = profiles.workspace_id and own.profile_id = profiles.id order by 1) as events,
  array(select product_id || ' ' || currency || ' ' || count || ' ' || trim_scale(revenue)
    from purchase_summaries as own
    where own.workspace_id = profiles.workspace_id and own.profile_id = profiles.id order by 1) as purchases
from profiles where workspace_id = $1`;

/** The statement also works on a distributed Postgres. */
const lettersStatement = formOf(`
select coalesce(kept.object -> 'properties' ->> 'n', kept.object::text) as object, kept.reason
from kept_dead_letters as kept
where kept.workspace_id = $1::uuid`).text;

const wrongSumsStatement = `
with events_counted as (
  select profile_id, name, count(*) from events where workspace_id = $1 group by profile_id, name
), purchases_counted as (
  select profile_id, product_id, currency, sum(quantity) as count, sum(price * quantity) as revenue
    from purchases where workspace_id = $1 group by profile_id, product_id, currency
), event_sums as (
  select profile_id, name, count from event_summaries where workspace_id = $1
), purchase_sums as (
  select profile_id, product_id, currency, count, revenue from purchase_summaries where workspace_id = $1
)
select profile_id, name as of, events_counted.count::text as rows, event_sums.count::text as summary
  from events_counted full join event_sums using (profile_id, name)
 where events_counted.count is distinct from event_sums.count
union all
select profile_id, product_id, purchases_counted.count || ' for ' || purchases_counted.revenue,
       purchase_sums.count || ' for ' || purchase_sums.revenue
  from purchases_counted full join purchase_sums using (profile_id, product_id, currency)
 where (purchases_counted.count, purchases_counted.revenue)
       is distinct from (purchase_sums.count, purchase_sums.revenue)
union all
select null, coalesce(rows.of, series.of), rows.sums, series.sums
  from (
    select 'event ' || name || ' ' || date_trunc('hour', "time", 'UTC') as of, count(*)::text as sums
      from events where workspace_id = $1 group by 1
    union all
    select 'product ' || product_id || ' ' || date_trunc('hour', "time", 'UTC') || ' ' || currency,
           sum(quantity) || ' for ' || sum(price * quantity)
      from purchases where workspace_id = $1 group by 1
  ) as rows
  full join (
    select 'event ' || name || ' ' || hour as of, sum(count)::text as sums
      from activity_series where workspace_id = $1 and kind = 'event' and app_id = '' group by 1
    union all
    select 'product ' || name || ' ' || hour || ' ' || currency, sum(count) || ' for ' || sum(revenue)
      from activity_series where workspace_id = $1 and kind = 'product' and app_id = '' group by 1
  ) as series on series.of = rows.of
 where rows.sums is distinct from series.sums`;
