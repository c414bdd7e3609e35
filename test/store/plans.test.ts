import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import type { Connection, Database, Pool } from '../../src/store/database.ts';
import { everyStatementByIndex } from '../../src/store/database.ts';
import { central, copied, distributed, views } from '../../src/store/distributed-tables.ts';
import { formsOf } from '../../src/store/one-workspace.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { openRetentionPool } from '../../src/store/retention.ts';
import { alias, identity } from '../identity/objects.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { email, says } from '../subscription/scene.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { attributes, deliver, event, point } from '../workers/batch.ts';
import { exceptions, keys } from './distributed/exceptions.ts';
import { withoutWorkspace } from './distributed/without-workspace.ts';
import { longReads, small, usedElsewhere } from './plans/allowed.ts';
import { sendEverything } from './plans/everything.ts';
import { type Filled, fill } from './plans/fill.ts';
import {
  type Access,
  accesses,
  type Catalog,
  explainCustom,
  explainGeneric,
  longRead,
  readCatalog,
} from './plans/read.ts';
import { recordingOn, type Sent } from './plans/record.ts';
import { linesOfStore, type Session, sessionsOf } from './plans/sources.ts';

let edge: Database;
let workers: Database;
let retention: Pool;
let filled: Filled;
let catalog: Catalog;
let sent: Sent[];
let lines: Set<string>;
/** Every access to a table by a statement of the store. */
let accessPaths: (Access & { site: string })[];

beforeAll(async () => {
  const { url } = await createDatabaseOfOne();
  edge = openDatabase(url, 1);
  workers = openDatabase(url, 1, { session: everyStatementByIndex });
  retention = openRetentionPool(url);
  filled = await fill(edge.pool);
  catalog = await readCatalog(edge.pool);
  ({ sent, lines } = await undone(edge, (tx) => sendEverything(tx, filled)));
  accessPaths = await waysOf(sent);
});
afterAll(() => Promise.all([edge.stop(), workers.stop(), retention.end()]));

/** Runs the work in a transaction that is rolled back. */
async function undone<T>({ pool }: Pick<Database, 'pool'>, work: (tx: Connection) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  try {
    await tx.query('begin');
    return await work(tx);
  } finally {
    await tx.query('rollback');
    tx.release();
  }
}

/**
 * Returns `site: table` for each table whose workspace a statement does not name, in any form for a
 * distributed Postgres.
 */
async function withoutWorkspaceOf(statements: Sent[]): Promise<string[]> {
  const lying = { ...distributed, ...views, workspace_places: 'workspace_id' };
  const collected = new Set<string>();
  for (const [text, site] of new Map(statements.map((one) => [one.text, one.site])))
    for (const form of formsOf(text))
      for (const table of await withoutWorkspace(form, lying)) collected.add(`${site}: ${table}`);
  return [...collected].sort();
}

/** Plans the statements with the settings of the sessions that send them. */
async function waysOf(statements: Sent[]): Promise<(Access & { site: string })[]> {
  const results: (Access & { site: string })[] = [];
  const plan = async (tx: Connection, session: Session, explain: typeof explainCustom) => {
    for (const one of statements) {
      if (!sessionsOf(one.site).includes(session)) continue;
      for (const access of accesses(await explain(tx, one), catalog))
        results.push({ ...access, site: one.site });
    }
  };
  await undone(workers, (tx) => plan(tx, 'workers', explainGeneric));
  await undone({ pool: retention }, (tx) => plan(tx, 'retention', explainCustom));
  await undone(edge, async (tx) => {
    await plan(tx, 'edge', explainCustom);
    // Postgres may use the generic plan from the sixth execution on.
    await tx.query('set local plan_cache_mode = force_generic_plan');
    await plan(tx, 'edge', explainGeneric);
  });
  return results;
}

describe('plans of the statements of the store on a filled database', () => {
  test('there is a plan for every statement', () => {
    expect(linesOfStore().filter((line) => !lines.has(line))).toEqual([]);
  });

  test('read little of each large table, with listed exceptions', () => {
    const long = accessPaths.flatMap((accessPath) => {
      const read = accessPath.table in small ? undefined : longRead(accessPath);
      return read === undefined ? [] : [`${accessPath.site}: ${read}`];
    });
    expect([...new Set(long)].sort()).toEqual(Object.keys(longReads).sort());
  });

  test('report a long read when an index is missing', async () => {
    const statements = sent.filter(({ site }) => site === 'profile-attributes.ts movePushTokens');
    expect(statements).toHaveLength(1);
    const plan = await undone(workers, async (tx) => {
      await tx.query('drop index push_tokens_profile');
      return explainGeneric(tx, statements[0]!);
    });
    expect([...accesses(plan, catalog)].map(longRead)).toContain('what one owner has in push_tokens');
  });

  test('report a long read when paging does not follow the key', async () => {
    const [of, ...rest] = sent.filter(({ site }) => site === 'retention.ts readRows');
    expect(rest.length).toBeGreaterThan(0);
    const byId = /\((\w+)\.profile_id, \w+\.id\) > \(\$2::uuid, \$3::uuid\)\s+order by .*/;
    expect(of!.text).toMatch(byId);
    const text = of!.text.replace(
      byId,
      '$1.id > $2::uuid and $1.id < $3::uuid order by $1.workspace_id, $1.id',
    );
    const plan = await undone({ pool: retention }, (tx) => explainCustom(tx, { ...of!, text }));
    expect([...accesses(plan, catalog)].map(longRead)).toContain('what one owner has in events');
  });
});

describe('G7: statements of the store', () => {
  test('name the workspace of each colocated table by a scalar, with listed exceptions', async () => {
    expect(await withoutWorkspaceOf(sent)).toEqual(Object.keys(exceptions).sort());
  });

  test('each table is colocated by workspace, copied to every node, or central', async () => {
    const { rows } = await edge.pool.query<{ name: string }>(`
      select pg_class.relname as name from pg_class
      where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind in ('r', 'p') and not pg_class.relispartition`);
    const tables = [...Object.keys(distributed), ...copied, ...central];
    expect(rows.map(({ name }) => name).sort()).toEqual(tables.sort());
  });

  test('each key of a colocated table contains the workspace, with listed exceptions', async () => {
    const { rows } = await edge.pool.query<{ table: string; index: string; columns: string[] }>(`
      select pg_class.relname as table, pg_index.indexrelid::regclass::text as index, array(
        select pg_attribute.attname::text from pg_attribute
        where pg_attribute.attrelid = pg_class.oid and pg_attribute.attnum = any(pg_index.indkey)) as columns
      from pg_index join pg_class on pg_class.oid = pg_index.indrelid
      where pg_index.indisunique and not pg_class.relispartition`);
    const matches = rows.filter(
      ({ table, columns }) => table in distributed && !columns.includes(distributed[table]!),
    );
    expect(matches.map(({ index }) => index).sort()).toEqual(Object.keys(keys).sort());
  });
});

test('every large table is filled, so that no plan treats it as small', async () => {
  const { rows } = await edge.pool.query<{ name: string; rows: number }>(`
    select root::text as name, sum(pg_class.reltuples)::integer as rows
    from pg_class
    cross join lateral coalesce(pg_partition_root(pg_class.oid)::oid, pg_class.oid) as id
    cross join lateral (select id::regclass as root) as whole
    where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind = 'r'
    group by root`);
  expect(rows.filter(({ name, rows }) => !(name in small) && rows < 10_000)).toEqual([]);
  expect(rows.filter(({ name, rows }) => name in small && rows > 1000)).toEqual([]);
});

test('rows that are deleted by a cascade are found by an index', async () => {
  const { rows } = await edge.pool.query(`
    select conrelid::regclass::text as table, conname as name
    from pg_constraint
    where contype = 'f' and confdeltype = 'c'
      and not exists (
        select from pg_index where indrelid = conrelid and indkey[0] = conkey[1] and indpred is null)`);
  expect(rows).toEqual([]);
});

/** Returns attributes, events, purchases, aliases, tokens and states, for existing users and new ones. */
function mixed({ users, group }: Filled) {
  const [first, second] = users as [(typeof users)[0], (typeof users)[0]];
  const time = '2026-01-02T03:04:05.000Z';
  const product = { product_id: 'product2', currency: 'USD', price: 1, quantity: 1, time };
  return [
    ...[first.external_id, 'new', { email: second.email }, { phone: second.phone }].flatMap((who) => [
      event(who),
      point(who),
    ]),
    { ...event('new'), kind: 'purchases' as const, ...product },
    event(alias('label:alias2')),
    attributes({ service_id: '0198a1b2c3d4000000000001' }, { standard: { country: 'DE' } }),
    attributes('new', {
      standard: { email: 'new@x.com', phone: '+442071838750', phone_valid: true },
      push_tokens: [{ app_id: 'app', token: 'token2', device_id: 'device2' }],
    }),
    identity('alias_new', { ...alias('other:new'), external_id: 'new' }),
    email(first.email, { state: 'unsubscribed' }),
    says({ email: first.email }, group, 'subscribed'),
    attributes('new', {
      subscription_groups: [{ subscription_group_id: newId(), subscription_state: 'subscribed' }],
    }),
  ];
}

test('every index of the tables that the hot path writes is used by some statement', async () => {
  const { rows, statements } = await undone(workers, async (tx) => {
    const hot = recordingOn(tx);
    const result = await applyBatch(hot.store, [deliver({ id: filled.workspaceId }, mixed(filled))]);
    expect(result).toMatchObject({ kind: 'applied', deadLetters: [expect.any(String)] });
    return { ...(await tx.query(indexesOfWritten)), statements: hot.sent };
  });
  const planned = new Set(sent.map(({ text }) => text));
  expect(statements.filter(({ text }) => !planned.has(text))).toEqual([]);

  const written = new Set(rows.map(({ table }) => table));
  for (const table of [
    'profiles',
    'user_aliases',
    'events',
    'purchases',
    'event_summaries',
    'purchase_summaries',
  ]) {
    expect(written).toContain(table);
  }
  for (const table of [
    'ledger',
    'dead_letters',
    'push_tokens',
    'usage',
    'lane_totals',
    'subscription_history',
  ]) {
    expect(written).toContain(table);
  }
  const used = new Set(accessPaths.map(({ index }) => index));
  const idle = rows.filter(({ index, keeps }) => !keeps && !used.has(index)).map(({ index }) => index);
  expect([...new Set(idle)].sort()).toEqual(Object.keys(usedElsewhere).sort());
});

/**
 * Reads the indexes of all tables written by this transaction; `keeps` marks unique indexes that enforce a
 * rule.
 */
const indexesOfWritten = `
  select
    whole.index::regclass::text as index,
    whole.table::regclass::text as table,
    pg_index.indisunique as keeps
  from pg_stat_xact_user_tables as written
  join pg_index on pg_index.indrelid = written.relid
  cross join lateral (
    select
      coalesce(pg_partition_root(pg_index.indexrelid)::oid, pg_index.indexrelid) as index,
      coalesce(pg_partition_root(pg_index.indrelid)::oid, pg_index.indrelid) as table
  ) as whole
  where written.n_tup_ins + written.n_tup_upd + written.n_tup_del > 0`;
