import { spawnSync } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { listProcesses } from '../../src/store/processes.ts';
import { eitherBackend, type Fleet, type Member, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { findPromtool } from '../setup/installed.ts';
import { createIntegration } from '../setup/integrations.ts';
import { startProcess } from '../setup/processes.ts';
import { refuseEvents } from '../workers/batch.ts';

const time = '2026-01-31T12:00:00Z';

/**
 * What to monitor, the process that shows it, its line in /metrics, and the expected value after the traffic below.
 */
const shown: [string, 'web' | 'worker', RegExp, (value: number) => void][] = [
  ['accepted objects', 'web', /^penstock_objects_accepted_total\{operation="users.track"\}/, exactly(6)],
  ['rejected objects', 'web', /^penstock_objects_rejected_total\{operation="users.track"\}/, exactly(1)],
  [
    'rejected objects by reason',
    'web',
    /^penstock_objects_rejected_reasons_total\{reason="invalid"\}/,
    exactly(1),
  ],
  [
    'reasons without rejected objects',
    'web',
    /^penstock_objects_rejected_reasons_total\{reason="in_use"\}/,
    exactly(0),
  ],
  ['refused objects that were not stored', 'web', /^penstock_refused_objects_dropped_total/, exactly(0)],
  ['applied objects', 'web', /^penstock_installation_objects_applied/, exactly(3)],
  ['applied objects of this worker', 'worker', /^penstock_worker_objects_applied_total/, exactly(3)],
  ['dead letters', 'web', /^penstock_installation_dead_letters/, exactly(1)],
  ['dead letters that wait', 'web', /^penstock_dead_letters_waiting/, exactly(1)],
  ['dead letters of this worker', 'worker', /^penstock_worker_dead_letters_total/, exactly(1)],
  // One active job, and one that waits.
  ['queue depth', 'web', /^penstock_queue_depth\{lane="lane-0"\}/, exactly(2)],
  ['age of the oldest job', 'web', /^penstock_queue_oldest_seconds\{lane="lane-0"\}/, above(0)],
  ['age of the oldest job of a shard', 'web', /^penstock_queue_shard_oldest_seconds\{shard="0"\}/, above(0)],
  [
    'envelopes of this worker',
    'worker',
    /^penstock_worker_envelopes_applied_total\{lane="lane-0"\}/,
    exactly(1),
  ],
  ['time from acceptance to effect', 'worker', /^penstock_worker_effect_seconds_sum/, above(0)],
  ['envelopes with a known time to effect', 'worker', /^penstock_worker_effect_seconds_count/, exactly(1)],
  ['releases', 'worker', /^penstock_build_info\{process="worker",version="\d.*\} 1$/, exactly(1)],
  ['memory of the worker', 'worker', /^process_resident_memory_bytes/, above(1e7)],
  ['dependencies of a worker', 'worker', /^penstock_dependency_up\{dependency="postgres"\}/, exactly(1)],
  ['workers of the fleet', 'web', /^penstock_processes\{process="worker"\}/, exactly(1)],
  ['processes of a kind that does not run', 'web', /^penstock_processes\{process="board"\}/, exactly(0)],
  ['bytes of a table', 'web', /^penstock_table_bytes\{table="events",part="indexes"\}/, above(1000)],
  ['bytes of large values', 'web', /^penstock_table_bytes\{table="profiles",part="toast"\}/, above(1000)],
  [
    'bytes of a monthly partition',
    'web',
    /^penstock_partition_bytes\{table="events",partition="events_/,
    above(1000),
  ],
  ['free disk', 'web', /^penstock_disk_free_bytes\{disk="tmp"\}/, above(0)],
  [
    'refused requests',
    'web',
    /^penstock_requests_refused_total\{status="429",workspace_id="[-0-9a-f]+",bucket=/,
    exactly(1),
  ],
  ['a fleet without a standstill', 'web', /^penstock_queue_standstill_seconds/, exactly(0)],
  [
    'a failing integration by name',
    'web',
    /^penstock_sync_integration_failing\{workspace="shop",integration=/,
    exactly(1),
  ],
  ['apply time of this worker', 'worker', /^penstock_worker_apply_seconds_sum/, above(0)],
  ['batch size', 'worker', /^penstock_worker_batch_objects_sum/, exactly(3)],
  ['batches', 'worker', /^penstock_worker_batch_objects_count/, exactly(1)],
  ['event-loop lag of the web', 'web', /^nodejs_eventloop_lag_seconds/, above(0)],
  ['event-loop lag of the worker', 'worker', /^nodejs_eventloop_lag_seconds/, above(0)],
  [
    'data points: attributes',
    'web',
    /^penstock_usage_today\{workspace="shop",kind="attributes"\}/,
    exactly(1),
  ],
  ['data points: events', 'web', /^penstock_usage_today\{workspace="shop",kind="events"\}/, exactly(1)],
  ['data points: purchases', 'web', /^penstock_usage_today\{workspace="shop",kind="purchases"\}/, exactly(1)],
  [
    'data points: subscriptions',
    'web',
    /^penstock_usage_today\{workspace="shop",kind="subscriptions"\}/,
    exactly(0),
  ],
  ['unfinished sync runs', 'web', /^penstock_sync_runs_unfinished/, exactly(1)],
  ['age of the oldest unfinished run', 'web', /^penstock_sync_oldest_run_seconds/, above(50)],
  ['integrations whose last sync failed', 'web', /^penstock_sync_failing_integrations/, exactly(1)],
];

describe.each(eitherBackend)('/metrics after real traffic, queue on %s', (backend) => {
  const pages = { web: '', worker: '' };
  let running: Fleet;
  let targets: { targets: string[]; labels: Record<string, string> }[] = [];

  beforeAll(async () => {
    const fleet = await startFleet(backend, { edges: 1, workers: 1, env: { LANES: '1' } });
    await refuseEvents(fleet.pool, 'poison');
    const ada = { external_id: 'ada' };
    await track(fleet, {
      attributes: [{ ...ada, n: 1 }],
      events: [
        { ...ada, name: 'seen', time },
        { ...ada, name: 'poison', time },
        { ...ada, name: 'never', time: 'never' },
      ],
      purchases: [{ ...ada, product_id: 'a', currency: 'USD', price: 1, time }],
    });
    const web = fleet.edges[0]!;
    await waitUntil(async () => valueIn(await read(web), /^penstock_queue_depth/) === 0, {
      what: 'an empty lane',
    });
    // Keeps the next job active, so that the one after it waits.
    const blocker = await fleet.pool.connect();
    await blocker.query('begin; lock table ledger in exclusive mode');
    await track(fleet, { events: [{ ...ada, name: 'held', time }] });
    await waitUntil(async () => (await stuckBatches(fleet)) > 0, { what: 'a job in work' });
    const alone = await read(web);
    expect(valueIn(alone, /^penstock_queue_depth/)).toBe(1);
    await track(fleet, { events: [{ ...ada, name: 'waits', time }] });
    await addSyncRuns(fleet);
    await refuseOne(fleet);
    // The age is read every two seconds, and counted in whole seconds.
    await waitUntil(async () => valueIn(await read(web), /^penstock_queue_oldest_seconds/) > 0, {
      what: 'an age of the oldest',
    });
    pages.web = await read(web);
    targets = JSON.parse(await (await fetch(`http://127.0.0.1:${web.port}/metrics/targets`)).text());
    // The lag on a page was measured between it and the previous page.
    await read(fleet.workers[0]!);
    pages.worker = await read(fleet.workers[0]!);
    await blocker.query('rollback');
    blocker.release();
    running = fleet;
    return fleet.stop;
  });

  test.for(shown)('shows %s (%s)', ([_, process, line, expectation]) => {
    expectation(valueIn(pages[process], line));
  });

  test('the heartbeat of web contains its high-water marks and its refused requests', async () => {
    const web = await waitUntil(
      async () =>
        (await listProcesses(running.pool)).find(({ name, refused }) => name === 'web' && refused > 0),
      { what: 'what it has refused', deadline: 15_000 },
    );
    expect(web.marks).toMatchObject({
      queue_depth: { unit: 'jobs', over: false },
      event_loop_lag: { unit: 'ms', over: false },
    });
  });

  test('Prometheus discovers each process of the fleet with its address', () => {
    expect(targets.map(({ labels }) => labels.process).sort()).toEqual(['web', 'worker']);
    for (const {
      targets: [at],
    } of targets)
      expect(at).toMatch(/^127\.0\.0\.1:\d+$/);
  });

  if (backend === 'redis') {
    test('a second worker on the machine takes a free port and reports its address', async () => {
      const [first] = running.workers as [Member];
      const second = startProcess('dist/workers/worker.js', {
        ...running.env,
        WORKER_PORT: String(first.port),
      });
      const addresses = async () => {
        const workers = (await listProcesses(running.pool)).filter(({ name }) => name === 'worker');
        return workers.map(({ address }) => address);
      };
      await waitUntil(async () => (await addresses()).length === 2, { what: 'a second worker' });
      const other = (await addresses()).find((address) => address !== `127.0.0.1:${first.port}`);
      expect(await (await fetch(`http://${other}/metrics`)).text()).toContain(
        'penstock_worker_objects_applied_total',
      );
      second.kill('SIGTERM');
      await second.exit;
      expect(await addresses()).toEqual([`127.0.0.1:${first.port}`]);
    });
  }

  test('promtool reports no problem in the pages of web and worker', async () => {
    const promtool = await findPromtool();
    for (const page of Object.values(pages)) {
      const { status, stdout, stderr } = spawnSync(promtool, ['check', 'metrics'], {
        input: page,
        encoding: 'utf8',
      });
      expect([status, stdout, stderr]).toEqual([0, '', '']);
    }
  });

  // The pages of sync and board do not depend on the queue.
  if (backend === 'redis')
    test('promtool reports no problem in the pages of sync and board', async () => {
      const [promtool, ...members] = await Promise.all([
        findPromtool(),
        running.startSync(),
        running.startBoard(),
      ]);
      for (const member of members) {
        const input = await read(member);
        expect(input).toContain('penstock_build_info');
        const { status, stdout, stderr } = spawnSync(promtool, ['check', 'metrics'], {
          input,
          encoding: 'utf8',
        });
        expect([member.name, status, stdout, stderr]).toEqual([member.name, 0, '', '']);
      }
    });
});

/** Sets a limit of one request per hour, and sends requests until one is refused. */
async function refuseOne({ pool, edges, workspace }: Fleet): Promise<void> {
  await pool.query(
    `insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'users.export.ids', 1, 3600)`,
    [workspace.id],
  );
  const call = () =>
    send(edges[0]!.port, {
      path: '/users/export/ids',
      key: workspace.key,
      json: { external_ids: ['ada'], fields_to_export: ['external_id'] },
    });
  // The key and its limits are cached for a while.
  await waitUntil(async () => (await call()).status === 429, { what: 'a request that is refused' });
}

/** Adds an integration whose last run failed, one that works again and has a running run, and a paused one. */
async function addSyncRuns({ pool, workspace }: Fleet): Promise<void> {
  const add = (integration: string, ...runs: [string, string | null][]) =>
    Promise.all(
      runs.map(([status, ended], index) =>
        pool.query(
          `insert into sync_jobs (id, integration_id, asked_by, status, started_at, finished_at)
           values ($1, $2, 'api', $3, now() - interval '1 minute', $4::timestamptz)`,
          [`018f0000-0000-7000-800${index}-${integration.slice(-12)}`, integration, status, ended],
        ),
      ),
    );
  const failing = await createIntegration(pool, workspace.id);
  await add(failing, ['success', '2026-01-01'], ['config_error', '2026-01-02']);
  const running = await createIntegration(pool, workspace.id);
  await add(running, ['error', '2026-01-01'], ['partial', '2026-01-02'], ['running', null]);
  const paused = await createIntegration(pool, workspace.id, { status: 'paused' });
  await add(paused, ['error', '2026-01-02']);
}

async function track({ edges, workspace }: Fleet, json: Record<string, object[]>): Promise<void> {
  const answer = await send(edges[0]!.port, {
    path: '/users/track',
    key: workspace.key,
    json: json as never,
  });
  expect(answer.status).toBe(201);
}

async function read({ port }: Member): Promise<string> {
  return (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
}

/** @returns NaN if there is no such line */
function valueIn(page: string, start: RegExp): number {
  const line = page.split('\n').find((candidate) => start.test(candidate));
  return Number(line?.split(' ').at(-1) ?? Number.NaN);
}

/** Number of transactions that wait for the table that the test has locked. */
async function stuckBatches({ pool }: Fleet): Promise<number> {
  const { rows } = await pool.query(
    "select count(*)::integer as count from pg_locks where relation = 'ledger'::regclass and not granted",
  );
  return rows[0].count;
}

function exactly(expected: number) {
  return (value: number) => expect(value).toBe(expected);
}

function above(least: number) {
  return (value: number) => expect(value).toBeGreaterThan(least);
}
