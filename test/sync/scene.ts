import pg from 'pg';
import { Registry } from 'prom-client';
import { v7 as uuidv7 } from 'uuid';
import { expect } from 'vitest';
import { checkColumns } from '../../src/integrations/columns.ts';
import type { Source } from '../../src/integrations/source.ts';
import { memoryTokenBuckets } from '../../src/limits/token-buckets.ts';
import { readConfig } from '../../src/platform/config.ts';
import { newId } from '../../src/platform/ids.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer, type QueueConnection } from '../../src/queue/connection.ts';
import { watchApplied } from '../../src/queue/effects.ts';
import { lanesOf } from '../../src/queue/hand-over.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { type LaneProducer, laneName } from '../../src/queue/lanes.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { type Run, startRun } from '../../src/store/sync-runs.ts';
import { formOf } from '../../tools/generate/citus-forms.ts';
import { JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { createRowValidator, createRules } from '../../workers/sync/chunk.ts';
import { createSyncMetrics } from '../../workers/sync/metrics.ts';
import { RunReader, RunSources } from '../../workers/sync/read.ts';
import { type Leaving, RunOutboxes } from '../../workers/sync/run-outbox.ts';
import { createThrottle, type Throttle } from '../../workers/sync/throttle.ts';
import { RunWorker } from '../../workers/sync/work-run.ts';
import { createDatabase, startRedis, waitUntil } from '../setup/fixtures.ts';
import { createIntegration, type TestIntegration } from '../setup/integrations.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { type MemoryRows, memorySource } from './memory-source.ts';

const log = createLog('test', 'silent');

/** Restricted to one workspace, so that a distributed Postgres accepts it too. */
const readErrors = formOf(`
  select kept.number::integer, kept.reason
  from kept_row_errors as kept
  where kept.job_id = $1 and kept.workspace_id = $2::uuid
  order by kept.number`).text;

export const never: Leaving = { soon: new AbortController().signal, now: new AbortController().signal };

/** The parts of the engine that tests change. */
export interface SyncParts {
  producer: LaneProducer;
  open(run: Run, signal: AbortSignal): Promise<Source>;
  throttleOf(run: Run): Throttle;
  maxRows: number;
}

/** A run as it is stored. */
export interface RunRow {
  status: string;
  rows_read: number;
  rows_synced: number;
  rows_failed: number;
  message: string | null;
  finished_at: Date | null;
  last_timestamp: string | null;
}

/**
 * Creates a store, a queue and workers, and the engine of syncs in the test's own process, on tables in
 * memory.
 */
export async function createSyncScene(
  kind: QueueConnection['kind'],
  { workers = 1, lanes = kind === 'redis' ? 4 : 1 }: { workers?: number; lanes?: number } = {},
) {
  const { url } = await createDatabase();
  const redis = kind === 'redis' ? await startRedis() : undefined;
  const env = {
    DATABASE_URL: url,
    LANES: String(lanes),
    LOCK_DURATION_MS: '1500',
    STALLED_INTERVAL_MS: '500',
    QUEUE_TIMEOUT_MS: '10000',
    LOG_LEVEL: 'warn',
    WORKER_PORT: '0',
    ...(redis && { REDIS_URL: redis.url }),
  };
  const config = readConfig(env);
  const database = openDatabase(url, 4);
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  const connection = connectProducer(config, url);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });
  const lane = openQueue(connection, laneName(0));
  const { id: workspaceId, key } = await createWorkspace(pool);
  const tables = new Map<string, MemoryRows>();
  const processes: TestProcess[] = [];

  const parts: SyncParts = {
    producer,
    open: async ({ integrationId }) => memorySource(tables.get(integrationId)!),
    throttleOf: (run) =>
      createThrottle({
        buckets: memoryTokenBuckets(),
        waiting: () => 0,
        lanes,
        workspaceId: run.workspaceId,
      }),
    maxRows: 1_000_000,
  };
  const metrics = createSyncMetrics();
  const attempts = new JobAttempts({
    pool: database.pool,
    processId: newId(),
    log,
    registry: new Registry(),
  });

  /** Creates the engine of runs, with changed parts. */
  function workerWith(change: Partial<SyncParts> = {}): RunWorker {
    const { producer, open, throttleOf, maxRows } = { ...parts, ...change };
    const own = { pool: database.pool, metrics };
    const outboxes = new RunOutboxes({
      ...{ ...own, lanes: lanesOf(producer, lanes), applied: watchApplied(database.pool) },
    });
    const reader = new RunReader({
      ...{ ...own, outboxes, throttleOf, maxRows },
      sources: new RunSources(open, (columns, run) => checkColumns(run.kind, columns, 'service_id'), log),
      rulesOf: (run) => createRules(database.pool, run, 0),
      building: {
        judge: createRowValidator('service_id'),
        lanes,
        maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
      },
    });
    return new RunWorker({ ...own, outboxes, reader, attempts, log });
  }

  async function runRow(id: string): Promise<RunRow> {
    const { rows } = await pool.query(
      `select status, rows_read::integer, rows_synced::integer, rows_failed::integer, message, finished_at,
              to_char(last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as last_timestamp
       from sync_jobs where id = $1`,
      [id],
    );
    return rows[0];
  }

  const scene = {
    url,
    env,
    config,
    pool,
    connection,
    /** Pool of the engine. */
    enginePool: database.pool,
    parts,
    metrics,
    log,
    workerWith,
    workspaceId,
    key,
    tables,
    lane,
    runRow,
    startWorker: () => {
      const process = startProcess('dist/workers/worker.js', env);
      processes.push(process);
      return process;
    },

    /** Creates an integration on a table in memory. @returns its id */
    async integrate(table: MemoryRows, change: TestIntegration = {}): Promise<string> {
      const id = await createIntegration(pool, workspaceId, change);
      tables.set(id, table);
      return id;
    },

    /** Starts a run. @returns its id */
    async begin(integrationId: string): Promise<string> {
      const id = uuidv7();
      expect(await startRun(database.pool, { id, integrationId, askedBy: 'operator' })).toBe('started');
      return id;
    },

    /** Works on a run in this process. @returns whether it is over */
    process: (id: string, leaving = never, change: Partial<SyncParts> = {}): Promise<boolean> =>
      workerWith(change).process(id, leaving),

    /** Executes a whole run in this process. @returns the stored run afterwards */
    async sync(integrationId: string, change: Partial<SyncParts> = {}): Promise<RunRow & { id: string }> {
      const id = await scene.begin(integrationId);
      expect(await scene.process(id, never, change)).toBe(true);
      return { id, ...(await runRow(id)) };
    },

    /**
     * Returns the reasons of failed rows of a run, by their numbers, as users read them: rows of deleted
     * users are hidden at once.
     */
    async errors(runId: string): Promise<Record<string, string>> {
      const { rows } = await pool.query(readErrors, [runId, workspaceId]);
      return Object.fromEntries(rows.map(({ number, reason }) => [number, reason]));
    },

    /** Counts the stored events with this name. */
    async countEvents(name: string): Promise<number> {
      const { rows } = await pool.query('select count(*)::integer as count from events where name = $1', [
        name,
      ]);
      return rows[0].count;
    },

    /** Returns the points of users, by external id. */
    async points(): Promise<Record<string, number>> {
      const { rows } = await pool.query(
        `select external_id, (custom_attributes -> 'points')::integer as points from profiles
         where external_id is not null`,
      );
      return Object.fromEntries(rows.map(({ external_id, points }) => [external_id, points]));
    },
    /** Returns the points of the users whose external ids have the prefix. */
    async pointsOf(prefix: string): Promise<[user: string, points: number][]> {
      return Object.entries(await this.points()).filter(([user]) => user.startsWith(prefix));
    },

    async stop(): Promise<void> {
      for (const process of processes) process.kill('SIGKILL');
      await Promise.all([lane.close(), producer.stop()]);
      await connection.stop();
      await Promise.all([database.stop(), pool.end()]);
    },
  };
  for (let count = 0; count < workers; count++) scene.startWorker();
  return scene;
}

export type SyncScene = Awaited<ReturnType<typeof createSyncScene>>;
