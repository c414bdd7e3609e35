import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findingsOf } from '../../src/admin/doctor/findings.ts';
import { readUnreadable } from '../../src/admin/doctor/stores.ts';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { createLog } from '../../src/platform/log.ts';
import { connectProducer, connectWorker } from '../../src/queue/connection.ts';
import { type LaneEntry, layoutOf } from '../../src/queue/lanes.ts';
import { READS } from '../../src/queue/wire.ts';
import { Fences, listenForFenceNews } from '../../workers/fence/fences.ts';
import { type Lanes, startLanes } from '../../workers/lane/lanes.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { attributes, openPool, readDeadLetters } from './batch.ts';
import { createFenceScene, type FenceScene } from './fence-scene.ts';

const LATER = READS + 1;

describe.each(['redis', 'postgres'] as const)('an envelope of a later release in a lane on %s', (kind) => {
  let scene: FenceScene;
  const errors: unknown[] = [];
  const running: { lanes: Lanes; stop(): Promise<void> }[] = [];
  beforeAll(async () => {
    scene = await createFenceScene(kind, { LOCK_DURATION_MS: '1500', STALLED_INTERVAL_MS: '500' });
  });
  afterAll(async () => {
    for (const worker of running) await worker.stop();
    await scene.stop();
  });

  /** Starts a worker with all lanes, assembled as in a process. */
  function startWorker(reads?: number): Lanes {
    const config = readConfig(scene.env);
    const { DATABASE_URL: databaseUrl } = config;
    const log = createLog('test', 'silent');
    log.error = (line: unknown) => void errors.push(line);
    const [connection, observer] = [connectWorker(config, databaseUrl), connectProducer(config, databaseUrl)];
    const pool = openPool(databaseUrl);
    const metrics = createWorkerMetrics();
    const scheduler = new Scheduler(pool, { metrics, log });
    const fences = new Fences({ pool, layout: layoutOf(config), metrics, log });
    const news = listenForFenceNews(databaseUrl, fences.hear, log);
    const parts = { id: newId(), connection, observer, scheduler, fences, config, databaseUrl, log };
    const lanes = startLanes({ ...parts, ...(reads !== undefined && { reads }) });
    running.push({
      lanes,
      async stop() {
        await Promise.all([lanes.stop(), news.stop()]);
        await Promise.all([connection.stop(), observer.stop(), pool.end()]);
      },
    });
    return lanes;
  }

  const step = (number: number): AcceptedObject =>
    attributes('ann', { change: { trail: { array: { add: [String(number)] } } } });
  const later = (entry: LaneEntry): LaneEntry => ({
    ...entry,
    envelope: { ...entry.envelope, version: LATER } as Envelope,
  });
  const trail = async () => {
    const { rows } = await scene.pool.query(
      `select custom_attributes -> 'trail' as trail from profiles where external_id = 'ann'`,
    );
    return (rows[0]?.trail ?? []) as string[];
  };
  const envelopeFindings = async () => {
    const own = await readUnreadable(scene.connection, 3);
    const findings = findingsOf({ at: new Date(), queue: scene.connection.kind, lacking: [], own });
    return findings.filter(({ check }) => check === 'envelopes');
  };
  const upTo = (count: number) => Array.from({ length: count }, (_, number) => String(number));

  test('G3: waits together with all later envelopes, without dead letters, and is reported', async () => {
    const entries = Array.from({ length: 12 }, (_, number) => scene.plain(0, step(number)));
    entries[8] = later(entries[8]!);
    await scene.producer.add(entries);
    const older = startWorker();
    await waitUntil(() => older.unreadable().length > 0, { what: 'the lane to be left' });
    const other = scene.plain(1, attributes('bob', { set: { seen: true } }));
    await scene.producer.add([other]);
    await waitUntil(() => scene.ledger(other.id), { what: 'the other lane to go on' });
    expect(await trail()).toEqual(upTo(8));
    expect(older.unreadable()).toEqual([{ lane: 0, version: LATER, reads: READS }]);
    expect(errors).toEqual([{ lane: 0, version: LATER, reads: READS }]);
    expect(await scene.jobs(0, 'waiting')).toEqual(entries.slice(8).map(({ id }) => id));
    expect(await envelopeFindings()).toMatchObject([{ level: 'error', id: 'job-unreadable' }]);
  });

  test('G2, G3: is applied once and in order by a worker of that release alongside an older one', async () => {
    startWorker(LATER);
    await waitUntil(async () => (await trail()).length === 12, { what: 'the lane to go on' });
    // The older worker takes the lane again in between, and leaves the envelopes of the later release.
    const more = Array.from({ length: 20 }, (_, number) => scene.plain(0, step(12 + number)));
    for (const [number, entry] of more.entries())
      await scene.producer.add([number % 4 === 1 ? later(entry) : entry]);
    await waitUntil(async () => (await trail()).length === 32, { what: 'the rest' });
    expect(await trail()).toEqual(upTo(32));
    expect(await readDeadLetters(scene.pool)).toEqual([]);
    expect(await envelopeFindings()).toMatchObject([{ level: 'ok' }]);
  });

  test('is followed by work of the older worker after the later worker has stopped', async () => {
    await running.pop()!.stop();
    const alone = scene.plain(0, step(32));
    await scene.producer.add([alone]);
    await waitUntil(() => scene.ledger(alone.id), { what: 'the older worker to look again' });
  });
});
