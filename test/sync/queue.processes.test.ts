import { v7 as uuidv7 } from 'uuid';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Service } from '../../src/platform/lifecycle.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { createSyncQueue, type SyncQueue } from '../../src/queue/syncs.ts';
import { ScheduledRuns, startSyncs, startSyncUpkeep } from '../../workers/sync/start.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { at, countingRow } from './memory-source.ts';
import { createSyncScene, type SyncScene } from './scene.ts';

/** The shortest interval, so that a test can wait for it. */
const EVERY_SECOND = '* * * * * *';

describe.each(['redis', 'postgres'] as const)('processes at the queue of syncs in %s', (kind) => {
  let scene: SyncScene;
  let syncs: SyncQueue;
  const running: (() => Promise<void>)[] = [];

  beforeAll(async () => {
    scene = await createSyncScene(kind);
    syncs = createSyncQueue(scene.connection, 20_000);
    return async () => {
      await syncs.stop();
      await scene.stop();
    };
  });
  beforeEach(() => stopAll);

  async function stopAll(): Promise<void> {
    await Promise.all(running.splice(0).map((stop) => stop()));
    await syncs.follow([]);
  }

  /** Starts the part of a sync process that consumes the queue. */
  async function startOne(): Promise<Service> {
    const connection = connectWorker(scene.config, scene.config.DATABASE_URL);
    await waitUntil(() => connection.ready(), { what: 'the queue' });
    const service = startSyncs({
      ...{ connection, config: scene.config, log: scene.log, working: scene.metrics.working },
      runs: scene.workerWith(),
      scheduled: new ScheduledRuns({
        ...{ pool: scene.enginePool, syncs, skipped: scene.metrics.skipped, log: scene.log },
      }),
    });
    running.push(async () => {
      await service.stop();
      await connection.stop();
    });
    return service;
  }

  async function runsOf(integration: string) {
    const { rows } = await scene.pool.query(
      `select asked_by, status, started_at, extract(epoch from started_at)::integer as second
       from sync_jobs where integration_id = $1 order by id`,
      [integration],
    );
    return rows as { asked_by: string; status: string; started_at: Date; second: number }[];
  }

  test('a schedule starts runs at its times, once across two processes', async () => {
    const integration = await scene.integrate({ rows: [countingRow('s', at(0))] });
    await startOne();
    await startOne();
    const begun = Date.now();
    await syncs.schedule({ id: integration, pattern: EVERY_SECOND });
    const ended = async () => (await runsOf(integration)).filter(({ status }) => status === 'success');
    await waitUntil(async () => (await ended()).length >= 3, { what: 'three runs' });
    await syncs.unschedule(integration);
    const runs = await runsOf(integration);
    expect(runs.every(({ asked_by }) => asked_by === 'schedule')).toBe(true);
    expect(runs.length).toBeLessThanOrEqual((Date.now() - begun) / 1000 + 1);
    expect((await scene.points()).s).toBe(1);
  });

  test('runs missed while no process was running are caught up with one run', async () => {
    const integration = await scene.integrate({ rows: [] });
    await syncs.schedule({ id: integration, pattern: EVERY_SECOND });
    const due = Date.now();
    await waitUntil(() => Date.now() > due + 3500, { what: 'its times to pass' });
    const from = Date.now();
    await startOne();
    await waitUntil(async () => (await runsOf(integration)).length > 0, { what: 'the run that was missed' });
    await syncs.unschedule(integration);
    const runs = await runsOf(integration);
    // One run for all missed times, and one per second since.
    expect(runs.length).toBeLessThanOrEqual((Date.now() - from) / 1000 + 2);
  });

  test('a scheduled run is skipped while the last one has not ended or the integration is paused', async () => {
    const busy = await scene.integrate({ rows: [] });
    await scene.begin(busy);
    const paused = await scene.integrate({ rows: [] }, { status: 'paused' });
    await startOne();
    for (const id of [busy, paused]) await syncs.schedule({ id, pattern: EVERY_SECOND });
    const skipped = async (reason: string) =>
      (await scene.metrics.skipped.get()).values.find(({ labels }) => labels.reason === reason)?.value;
    await waitUntil(async () => (await skipped('in progress')) && (await skipped('not active')), {
      what: 'both to be omitted',
    });
    expect(await runsOf(busy)).toHaveLength(1);
    expect(await runsOf(paused)).toEqual([]);
    await scene.pool.query('delete from integrations where id = $1', [busy]);
  });

  test('runs and schedules missing from the queue are restored from the tables', async () => {
    const integration = await scene.integrate({ rows: [countingRow('found', at(0))] }, { schedule: 'daily' });
    await scene.integrate({ rows: [] }, { schedule: 'daily', status: 'paused' });
    await scene.begin(integration);
    const gone = '018f0000-0000-7000-8000-000000000000';
    await syncs.schedule({ id: gone, pattern: '0 3 * * *' });
    await startOne();
    const upkeep = startSyncUpkeep(scene.enginePool, syncs, scene.log);
    await waitUntil(async () => (await runsOf(integration))[0]!.status === 'success', { what: 'the run' });
    await waitUntil(async () => (await syncs.scheduled()).every(({ id }) => id !== gone), {
      what: 'the schedules to be those of the table',
    });
    expect(await syncs.scheduled()).toEqual([{ id: integration, pattern: '0 0 * * *' }]);
    await upkeep.stop();
  });

  test('schedules lost from the queue catch up a run whose time has passed once', async () => {
    const hour = "now() - interval '1 hour'";
    const day = "now() - interval '25 hours'";
    const given = async (updatedAt: string) => {
      const id = await scene.integrate({ rows: [] }, { schedule: 'every hour' });
      await scene.pool.query(`update integrations set updated_at = ${updatedAt} where id = $1`, [id]);
      return id;
    };
    const [missed, ran, resumed] = [await given(day), await given(day), await given('now()')];
    await scene.sync(ran);
    await startOne();
    for (let time = 0; time < 2; time++) {
      const upkeep = startSyncUpkeep(scene.enginePool, syncs, scene.log);
      await waitUntil(async () => (await syncs.scheduled()).some(({ id }) => id === resumed), {
        what: 'the schedules',
      });
      await waitUntil(async () => (await runsOf(missed))[0]?.status === 'success', { what: 'the run' });
      await upkeep.stop();
      // The queue is emptied again: the run that was caught up counts as the last one.
      for (const { id } of await syncs.scheduled()) await syncs.unschedule(id);
    }
    expect(await runsOf(missed)).toMatchObject([{ asked_by: 'schedule' }]);
    expect(await runsOf(ran)).toMatchObject([{ asked_by: 'operator' }]);
    expect(await runsOf(resumed)).toEqual([]);
    await scene.pool.query(`update sync_jobs set started_at = ${hour} where integration_id = $1`, [missed]);
    const upkeep = startSyncUpkeep(scene.enginePool, syncs, scene.log);
    const areOver = async () => {
      const runs = await runsOf(missed);
      return runs.length === 2 && runs.every(({ status }) => status === 'success');
    };
    await waitUntil(areOver, { what: 'the next run that was missed' });
    await upkeep.stop();
    await scene.pool.query('delete from integrations where id = any($1)', [[missed, ran, resumed]]);
  });

  test('row errors are deleted after 30 days, runs after twelve months, unfinished runs never', async () => {
    const bad = { updatedAt: at(0), identifiers: { external_id: 'old' }, payload: '1' };
    const integration = await scene.integrate({ rows: [bad] });
    const young = await scene.sync(integration);
    await scene.pool.query(
      `update integrations set last_timestamp = null where id = '${integration}';
       delete from sync_boundary;
       update sync_row_errors set occurred_at = now() - interval '31 days' where job_id = '${young.id}'`,
    );
    const old = await scene.sync(integration);
    // The id is as old as the run, as in a real row.
    const then = Date.now() - 367 * 86_400_000;
    const oldId = uuidv7({ msecs: then });
    await scene.pool.query(
      `insert into sync_jobs
       select (jsonb_populate_record(sync_jobs, jsonb_build_object('id', $2::text, 'started_at', $3::text, 'finished_at', $3))).*
       from sync_jobs where id = $1`,
      [old.id, oldId, new Date(then).toISOString()],
    );
    await scene.pool.query('update sync_row_errors set job_id = $2 where job_id = $1', [old.id, oldId]);
    await scene.pool.query('delete from sync_jobs where id = $1', [old.id]);
    const waiting = await scene.begin(integration);
    await scene.pool.query("update sync_jobs set started_at = now() - interval '2 years' where id = $1", [
      waiting,
    ]);
    const upkeep = startSyncUpkeep(scene.enginePool, syncs, scene.log);
    const kept = async () =>
      (
        await scene.pool.query('select id from sync_jobs where integration_id = $1 order by id', [
          integration,
        ])
      ).rows;
    await waitUntil(async () => (await kept()).length === 2, { what: 'the old run to go' });
    expect((await kept()).map(({ id }) => id)).toEqual([young.id, waiting]);
    expect(await scene.errors(young.id)).toEqual({});
    await upkeep.stop();
  });
});
