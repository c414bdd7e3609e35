import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runRetention } from '../../src/retention/run.ts';
import { recountSeries } from '../../src/store/activity-series.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { forgetKeys } from '../../src/store/idempotency-keys.ts';
import { forgetEnvelopes } from '../../src/store/ledger.ts';
import { forgetOutcomes } from '../../src/store/outcomes.ts';
import { openRetentionPool } from '../../src/store/retention.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { startTombstoneCleanup } from '../../workers/upkeep/tombstones.ts';
import { remove } from '../identity/objects.ts';
import { inFolder } from '../retention/scene.ts';
import { citusUrl } from '../setup/citus.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isLong, lengthOf } from '../setup/length.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, event, purchase, silent, waitForLocks } from '../workers/batch.ts';
import { createDistributedDatabase } from './distributed-database.ts';

/** Rows of all workspaces in each maintained table. */
const ROWS = lengthOf({ short: 4000, long: 400_000 });

/** Enough workspaces for each node to have one. */
const WORKSPACES = 8;

const EACH = ROWS / WORKSPACES;

/** SQL for ids that `uuid_v7_floor` would make, one per millisecond and distinguished by number. */
const id = (from: string) =>
  `(left(uuid_v7_floor(${from} + n * interval '1 ms')::text, 24) || lpad(to_hex(n), 12, '0'))::uuid`;

/** Runs a step. The long run prints its duration, without the time that filling the tables takes. */
async function timed<Result>(what: string, step: () => Promise<Result>): Promise<Result> {
  const from = performance.now();
  const result = await step();
  if (isLong) process.stdout.write(`${what}: ${((performance.now() - from) / 1000).toFixed(1)} s\n`);
  return result;
}

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL, with many rows', () => {
  let url: string;
  let pool: Pool;
  const workspaces: TestWorkspace[] = [];
  beforeAll(async () => {
    url = await createDistributedDatabase();
    pool = openPool(url, 8);
    for (let number = 0; number < WORKSPACES; number++) {
      const workspace = await createWorkspace(pool, `workspace-${number}`);
      workspaces.push(workspace);
      await apply(workspace, [event('ann'), purchase('ann')]);
    }
  });
  afterAll(() => pool.end());

  async function apply(workspace: TestWorkspace, objects: Parameters<typeof deliver>[1]): Promise<void> {
    expect(await applyBatch(pool, [deliver(workspace, objects)])).toMatchObject({ kind: 'applied' });
  }

  /** Returns the id of the profile with the external id. */
  async function profileOf(workspace: TestWorkspace, name: string): Promise<string> {
    const text = 'select id from profiles where workspace_id = $1 and external_id = $2';
    return (await pool.query(text, [workspace.id, name])).rows[0].id;
  }

  /**
   * Inserts events of a user, and half as many purchases, from this moment on, with twenty names and two
   * apps.
   */
  async function fill(workspace: TestWorkspace, from: string, rows = EACH): Promise<void> {
    const values = [workspace.id, await profileOf(workspace, 'ann'), from, rows];
    await pool.query(
      `insert into events select $1::uuid, ${id('$3::timestamptz')}, $2::uuid, 'name-' || n % 20,
         $3::timestamptz + n * interval '1 minute', case when n % 2 = 0 then 'app' end, null
       from generate_series(1, $4::integer) as n`,
      values,
    );
    await pool.query(
      `insert into purchases select $1::uuid, ${id('$3::timestamptz')}, $2::uuid, 'hat-' || n % 20, 'EUR', 0.1, 2,
         $3::timestamptz + n * interval '1 minute', null, null
       from generate_series(1, $4::integer / 2) as n`,
      values,
    );
  }

  async function count(text: string, values: unknown[] = []): Promise<number> {
    return Number((await pool.query(`select count(*) from ${text}`, values)).rows[0].count);
  }

  /** Returns the counts of recorded rows by name, and the counts in the series. */
  async function recordedAndCounted({ id: workspaceId }: TestWorkspace) {
    const { rows: recorded } = await pool.query(
      `select 'event' as kind, name, count(*)::integer as count, 0::numeric as revenue from events where workspace_id = $1 group by name
       union all
       select 'product', product_id, sum(quantity)::integer, sum(price * quantity) from purchases where workspace_id = $1 group by product_id
       order by 1, 2`,
      [workspaceId],
    );
    const { rows: counted } = await pool.query(
      `select kind, name, sum(count)::integer as count, sum(revenue) as revenue from activity_series
       where workspace_id = $1 and app_id = '' and kind <> 'purchases' group by kind, name order by 1, 2`,
      [workspaceId],
    );
    const exact = (rows: { revenue: string }[]) =>
      rows.map((row) => ({ ...row, revenue: Number(row.revenue) }));
    return { recorded: exact(recorded), counted: exact(counted) };
  }

  test('a recount counts all recorded rows, also those recorded during the recount', async () => {
    waitForLocks();
    const now = new Date().toISOString();
    for (const workspace of workspaces) await fill(workspace, now);
    let isOver = false;
    const recording = Promise.all(
      workspaces.slice(0, 4).map(async (workspace) => {
        do await apply(workspace, [event('bob', 'name-1'), purchase('bob')]);
        while (!isOver);
      }),
    );
    await timed('recount', () => inTransaction(pool, recountSeries));
    isOver = true;
    await recording;
    for (const workspace of workspaces) {
      const { recorded, counted } = await recordedAndCounted(workspace);
      expect(counted).toEqual(recorded);
      expect(counted.length).toBeGreaterThan(40);
    }
  });

  test('deletes old rows of the ledger and keeps the others', async () => {
    const young = await count('ledger');
    for (const workspace of workspaces)
      await pool.query(
        `insert into ledger (workspace_id, envelope_id, applied_at)
         select $1::uuid, ${id("now() - interval '9 days'")}, now() - interval '9 days' from generate_series(1, $2::integer) as n`,
        [workspace.id, EACH],
      );
    expect(await count('ledger')).toBe(young + ROWS);
    await timed('ledger', () => forgetEnvelopes(pool, 7));
    expect(await count('ledger')).toBe(young);
  });

  test('deletes old outcomes and idempotency keys and keeps the others', async () => {
    const made = (days: number) => `now() - interval '${days} days'`;
    for (const workspace of workspaces)
      for (const [days, rows] of [
        [3, EACH],
        [0, 1],
      ] as const) {
        await pool.query(
          `insert into outcomes (workspace_id, object_id, decided_at)
           select $1::uuid, ${id(made(days))}, ${made(days)} from generate_series(1, $2::integer) as n`,
          [workspace.id, rows],
        );
        await pool.query(
          `insert into idempotency_keys (owner_id, operation, key_hash, fingerprint, request_id, created_at)
           select $1::uuid, 'users.track', decode(lpad(to_hex(n + $3::integer), 64, '0'), 'hex'), '', $1::uuid, ${made(days)}
           from generate_series(1, $2::integer) as n`,
          [workspace.id, rows, days * 1_000_000],
        );
      }
    await timed('outcomes', () => forgetOutcomes(pool));
    await timed('idempotency keys', () => forgetKeys(pool));
    expect({ outcomes: await count('outcomes'), keys: await count('idempotency_keys') }).toEqual({
      outcomes: WORKSPACES,
      keys: WORKSPACES,
    });
  });

  test('erases all rows of deleted users while lanes go on, and keeps the rows of others', async () => {
    const [first, second] = workspaces as [TestWorkspace, TestWorkspace];
    const gone = await profileOf(first, 'ann');
    const others = await count('events where workspace_id = $1 and profile_id <> $2', [first.id, gone]);
    await apply(first, [remove('ann')]);
    const settler = startTombstoneCleanup(pool, silent);
    let applied = 0;
    try {
      const isErased = async () => {
        await apply(second, [event('cyd')]);
        applied++;
        return (await count('removed_profiles where workspace_id = $1', [first.id])) === 0;
      };
      await timed('erasure', () => waitUntil(isErased, { what: 'the erasure', deadline: 100_000 }));
    } finally {
      await settler.stop();
    }
    for (const table of ['events', 'purchases', 'event_summaries', 'purchase_summaries'])
      expect(await count(`${table} where workspace_id = $1 and profile_id = $2`, [first.id, gone])).toBe(0);
    expect(await count('events where workspace_id = $1', [first.id])).toBe(others);
    expect(await count("events where workspace_id = $1 and name = 'visited'", [second.id])).toBe(applied + 1);
  });

  describe('a month past its retention', () => {
    const owners = () => workspaces.slice(2);
    const ofMonth = (year: number) =>
      `events where id >= uuid_v7_floor('${year}-03-01') and id < uuid_v7_floor('${year}-04-01')`;
    let retentionPool: Pool;
    beforeAll(() => {
      retentionPool = openRetentionPool(url);
    });
    afterAll(() => retentionPool.end());

    async function run(year: number, keeping: TestWorkspace[]) {
      await pool.query('select ensure_month_partitions($1::timestamptz, 0)', [`${year}-03-01T00:00:00Z`]);
      for (const workspace of owners()) {
        await pool.query(
          `insert into retention_policies (workspace_id, months) values ($1, $2)
           on conflict (workspace_id) do update set months = excluded.months`,
          [workspace.id, keeping.includes(workspace) ? null : 12],
        );
        await fill(workspace, `${year}-03-02T00:00:00Z`);
      }
      const store = await inFolder();
      const log = { info() {}, error() {} };
      return timed(`retention of ${year}`, () =>
        runRetention({ pool: retentionPool, store, months: 0, log }, 'archive'),
      );
    }

    test('is archived and dropped with its rows', async () => {
      const events = EACH * owners().length;
      expect(await run(2003, [])).toMatchObject({ archived: events * 1.5, dropped: 2, failed: 0 });
      expect(await count(ofMonth(2003))).toBe(0);
    });

    test('is archived and deleted row by row if another workspace keeps it', async () => {
      const [keeper] = owners();
      const rows = (owners().length - 1) * EACH * 1.5;
      expect(await run(2004, [keeper!])).toMatchObject({
        archived: rows,
        deleted: rows,
        dropped: 0,
        failed: 0,
      });
      expect(await count(ofMonth(2004))).toBe(EACH);
      expect(await count(`${ofMonth(2004)} and workspace_id = $1`, [keeper!.id])).toBe(EACH);
    });
  });
});

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});
