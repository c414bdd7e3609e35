import { beforeAll, describe, expect, test } from 'vitest';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import {
  type Asker,
  createAsker,
  createWarehouse,
  INTEGRATION_KEY,
  integrate,
  whenEnded,
} from './warehouse.ts';

const ROWS = lengthOf({ short: 12_000, long: 20_000 });
const KILLS = lengthOf({ short: 2, long: 4 });
const SHUTDOWN_TIMEOUT_MS = 20_000;

/** Milliseconds; a process takes a while to start where many others run. */
const PATIENCE = 240_000;

/** Half of the rows share timestamps, and some rows are equal, so that kills fall on boundaries. */
const fill = `
  create table seen as
  select timestamptz '2026-01-01' + make_interval(secs => greatest(n * 7 / ${ROWS}, n - ${(ROWS * 45) / 100})) as updated_at,
         'user-' || n % 2000 as external_id,
         jsonb_build_object('name', 'row-' || n % 4000) as payload
  from generate_series(0, ${ROWS} - 1) as n`;

describe.each(eitherBackend)('processes end or hang during a sync, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let asker: Asker;
  let integration: string;

  beforeAll(async () => {
    const warehouse = await createWarehouse();
    await warehouse.pool.query(fill);
    fleet = await startFleet(backend, { edges: 0, workers: 1, syncs: 2, env: { INTEGRATION_KEY } });
    asker = await createAsker(fleet);
    // About 1,500 rows per second, so that a run outlasts the replacement of killed processes.
    await fleet.pool.query(
      `insert into rate_limits (workspace_id, bucket, requests, window_seconds)
       values ($1, 'users.track', 20, 1)`,
      [fleet.workspace.id],
    );
    const source = warehouse.definition('seen');
    integration = await integrate(fleet, { kind: 'events', source }, warehouse.credentials);
    return async () => {
      await asker.stop();
      await fleet.stop();
      await warehouse.stop();
    };
  }, PATIENCE);

  async function progressOf(run: string) {
    const { rows } = await fleet.pool.query(
      `select rows_read::integer as read, finished_at is not null as ended from sync_jobs where id = $1`,
      [run],
    );
    return rows[0] as { read: number; ended: boolean };
  }

  /** Returns the sync process that executes the run: the one that reads the warehouse. */
  async function workingSync() {
    const { rows } = await fleet.pool.query(
      "select application_name as name from pg_stat_activity where query ~* 'fetch' and application_name like 'sync-%'",
    );
    return fleet.syncs.find(({ name }) => name === rows[0]?.name) ?? fleet.syncs[0]!;
  }

  /** Expects every row exactly once: by user and name, and in the sums. */
  async function expectExact(times: number) {
    const { rows } = await fleet.pool.query(
      'select count(*)::integer as rows, count(distinct (profile_id, name))::integer as different from events',
    );
    expect(rows[0]).toEqual({ rows: ROWS * times, different: 4000 });
    const summed = await fleet.pool.query('select sum(count)::integer as summed from event_summaries');
    expect(summed.rows[0]).toEqual({ summed: ROWS * times });
    expect((await fleet.pool.query('select from sync_chunks')).rowCount).toBe(0);
  }

  test(
    'sync processes and workers are killed at random points, and the counts are exact',
    async () => {
      const run = await asker.begin(integration);
      const goals = Array.from({ length: KILLS }, () => 1 + Math.floor(Math.random() * 0.8 * ROWS));
      const replacements: Promise<unknown>[] = [];
      for (const [kill, goal] of goals.sort((a, b) => a - b).entries()) {
        await waitUntil(async () => (await progressOf(run)).read >= goal, {
          what: `${goal} rows`,
          fleeting: true,
          deadline: 60_000,
        });
        expect((await progressOf(run)).ended).toBe(false);
        const worker = kill === 1;
        const members = worker ? fleet.workers : fleet.syncs;
        await waitUntil(() => members.length > 0, { what: 'one to kill', fleeting: true });
        await fleet.end(worker ? members[0]! : await workingSync());
        // Does not wait, because the next process may be killed before this one is ready.
        const replacement = worker ? fleet.startWorker() : fleet.startSync();
        replacement.catch(() => {});
        replacements.push(replacement);
      }
      await Promise.all(replacements);
      expect(await whenEnded(fleet, run, 60_000)).toMatchObject({
        status: 'success',
        rows_read: ROWS,
        rows_synced: ROWS,
        rows_failed: 0,
      });
      await expectExact(1);
    },
    PATIENCE,
  );

  test(
    'a process that is asked to end returns the run in time, and another process resumes it',
    async () => {
      await fleet.pool.query('update integrations set last_timestamp = null');
      await fleet.pool.query('delete from sync_boundary');
      const run = await asker.begin(integration);
      await waitUntil(async () => (await progressOf(run)).read > 500, {
        what: 'its first rows',
        fleeting: true,
        deadline: 60_000,
      });
      const ended = [];
      for (const sync of [...fleet.syncs]) ended.push(await fleet.end(sync, 'SIGTERM'));
      for (const { code, milliseconds } of ended) {
        expect(code).toBe(0);
        expect(milliseconds).toBeLessThan(SHUTDOWN_TIMEOUT_MS);
      }
      expect((await progressOf(run)).read).toBeLessThan(ROWS);
      expect((await fleet.pool.query('select from sync_chunks')).rowCount).toBe(0);
      // The run was returned: the next process does not wait until its lock expires.
      expect(await asker.jobs()).toEqual({ active: 0, waiting: 1 });
      await fleet.startSync();
      expect(await whenEnded(fleet, run, 60_000)).toMatchObject({ status: 'success', rows_read: ROWS });
      await expectExact(2);
    },
    PATIENCE,
  );

  test(
    'a process that is frozen and resumes late causes no double or missing rows',
    async () => {
      await fleet.pool.query('update integrations set last_timestamp = null');
      await fleet.pool.query('delete from sync_boundary');
      const run = await asker.begin(integration);
      await waitUntil(async () => (await progressOf(run)).read > 500, {
        what: 'its first rows',
        fleeting: true,
        deadline: 60_000,
      });
      const [frozen] = fleet.syncs;
      process.kill(frozen!.pid, 'SIGSTOP');
      const { read } = await progressOf(run);
      await fleet.startSync();
      await waitUntil(async () => (await progressOf(run)).read > read + 500, {
        what: 'another to go on',
        deadline: 60_000,
      });
      process.kill(frozen!.pid, 'SIGCONT');
      expect(await whenEnded(fleet, run, 60_000)).toMatchObject({ status: 'success', rows_read: ROWS });
      await expectExact(3);
      expect(await fleet.fallen()).toEqual([]);
    },
    PATIENCE,
  );
});
