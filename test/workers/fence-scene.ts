import type { Job } from 'bullmq';
import { v7 as uuidv7 } from 'uuid';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import type { Log } from '../../src/platform/log.ts';
import { Queue, Worker } from '../../src/queue/bullmq.ts';
import { optionsOfLane } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { envelopeId, type LaneEntry, laneName, layoutOf } from '../../src/queue/lanes.ts';
import { fenceEntries } from '../../src/queue/pack.ts';
import type { WireEnvelope } from '../../src/queue/wire.ts';
import type { Pool } from '../../src/store/database.ts';
import { Fences, listenForFenceNews } from '../../workers/fence/fences.ts';
import { LaneWorker } from '../../workers/lane/lane-worker.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { createDatabase, startRedis } from '../setup/fixtures.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { openPool, silent } from './batch.ts';

const LANES = 3;

/** Creates lanes on the given kind of queue, and workers that are assembled as in a process. */
export async function createFenceScene(kind: QueueConnection['kind'], settings: Record<string, string> = {}) {
  const { url } = await createDatabase();
  const redis = kind === 'redis' ? await startRedis() : undefined;
  const env = {
    DATABASE_URL: url,
    LANES: String(LANES),
    // So long that a job that is not given back is not recovered within a test.
    LOCK_DURATION_MS: '30000',
    STALLED_INTERVAL_MS: '15000',
    QUEUE_TIMEOUT_MS: '10000',
    ...(redis && { REDIS_URL: redis.url }),
    ...settings,
  };
  const config = readConfig(env);
  const pool = openPool(url);
  const workspace = await createWorkspace(pool);
  const connection = connectProducer(config, url);
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log: silent });
  const queues = Array.from(
    { length: LANES },
    (_, lane) => new Queue<Envelope>(laneName(lane), connection.options, connection.factory),
  );
  for (const queue of queues) {
    await queue.waitUntilReady();
    await queue.setGlobalConcurrency(1);
  }
  const stops: (() => Promise<unknown>)[] = [];
  const handing = connectWorker(config, url);
  const hand = new Worker<WireEnvelope>(
    laneName(0),
    null,
    { ...optionsOfLane(handing, 0), autorun: false },
    handing.factory,
  );

  function envelope(objects: AcceptedObject[], { id }: Pick<TestWorkspace, 'id'> = workspace): Envelope {
    const request = {
      request_id: uuidv7(),
      workspace_id: id,
      accepted_at: '2026-01-02T03:04:05Z',
      count: objects.length,
    };
    return { requests: objects.length > 0 ? [request] : [], objects };
  }

  return {
    env,
    pool,
    workspace,
    connection,
    producer,
    queues,
    laneStore: connection.laneStore,
    plain: (lane: number, ...objects: AcceptedObject[]): LaneEntry => ({
      lane,
      id: uuidv7(),
      envelope: envelope(objects),
    }),
    /** Creates an envelope of another workspace. */
    plainOf: (other: TestWorkspace, lane: number, ...objects: AcceptedObject[]): LaneEntry => ({
      ...{ lane, id: envelopeId([other.id]), envelope: envelope(objects, other) },
    }),
    fence: (lanes: number[], ...objects: AcceptedObject[]) =>
      fenceEntries(envelopeId([workspace.id]), lanes, envelope(objects)),
    /** Creates a fence as an earlier release does: its ids have no tag, and it names no workspace. */
    earlierFence(lanes: number[], ...objects: AcceptedObject[]): LaneEntry[] {
      const entries = fenceEntries(uuidv7(), lanes, envelope(objects));
      for (const entry of entries) delete entry.envelope.fence!.workspace_id;
      return entries;
    },

    /** Starts a worker for these lanes; a `deaf` worker receives no notifications. */
    startWorker(lanes: number[], { deaf = false, log = silent, fenceStore }: WorkerOptions = {}) {
      const own = connectWorker(config, url);
      const metrics = createWorkerMetrics();
      const store = openPool(url);
      const scheduler = new Scheduler(store, { metrics, log: silent });
      const fences = new Fences({
        pool: fenceStore ?? store,
        layout: layoutOf(config),
        metrics,
        log: silent,
      });
      const context = { laneStore: own.laneStore, scheduler, fences, config, log };
      const services = [
        ...(deaf ? [] : [listenForFenceNews(url, fences.hear, silent)]),
        ...lanes.map((lane) => new LaneWorker(lane, context)),
      ];
      const stop = async () => {
        await Promise.all(services.map((service) => service.stop()));
        await own.stop();
        await store.end();
      };
      stops.push(stop);
      /** Stops the worker, like SIGTERM. @returns the milliseconds that it took */
      return async () => {
        stops.splice(stops.indexOf(stop), 1);
        const started = performance.now();
        await stop();
        return performance.now() - started;
      };
    },

    /** Returns the ids of the jobs in a lane; waiting jobs are in the order in which they will be taken. */
    async jobs(lane: number, state: 'active' | 'waiting' | 'completed' | 'failed') {
      const jobs = await queues[lane]!.getJobs([state], 0, -1, true);
      return jobs.map(({ id }) => id);
    },
    /** Makes the next job of lane 0 active; the holder of the token gives it back or completes it. */
    async handOut(token: string): Promise<Job<WireEnvelope>> {
      const job = await hand.getNextJob(token, { block: false });
      if (!job) throw new Error('the lane hands out nothing');
      return job;
    },
    arrivals: async () => {
      const { rows } = await pool.query('select fence_id, lane from fence_arrivals order by fence_id, lane');
      return rows.map(({ fence_id: fence, lane }) => ({ fence, lane }));
    },
    ledger: async (id: string) => {
      const { rowCount } = await pool.query('select from ledger where envelope_id = $1', [id]);
      return rowCount === 1;
    },
    async stop() {
      for (const stop of stops) await stop();
      await hand.close();
      await handing.stop();
      await Promise.all(queues.map((queue) => queue.close()));
      await producer.stop();
      await connection.stop();
      await pool.end();
    },
  };
}

interface WorkerOptions {
  deaf?: boolean;
  log?: Log;
  /** Answers the queries about fences; by default the pool of the worker. */
  fenceStore?: Pool;
}

export type FenceScene = Awaited<ReturnType<typeof createFenceScene>>;
