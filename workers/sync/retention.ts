import { Counter, Gauge, type Registry } from 'prom-client';
import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll, until } from '../../src/platform/poll.ts';
import { openArchive, type Retention } from '../../src/retention/files.ts';
import { planRetention } from '../../src/retention/plan.ts';
import { eraseDeleted, planErasures } from '../../src/retention/restore.ts';
import { runRetention } from '../../src/retention/run.ts';
import { openRetentionPool } from '../../src/store/retention.ts';
import { noteFinished, readRetentionState } from '../../src/store/retention-runs.ts';
import { endedTheProcess, type JobAttempts } from '../jobs/job-attempts.ts';

const CHECK_MS = 3_600_000;
/** Milliseconds between two reads of the stored state, which other processes may change. */
const READ_MS = 60_000;
/** Milliseconds between two checks while another job is suspected of ending its process. */
const SUSPECT_POLL_MS = 1000;

type RetentionConfig = Pick<Config, 'RETENTION_MONTHS' | 'ARCHIVE_URL'> & Parameters<typeof openArchive>[0];

/**
 * Creates the retention metrics of a sync process. The gauges describe the whole installation, whichever
 * process does the work.
 */
export function createRetentionMetrics(registry: Registry) {
  const registers = [registry];
  const finished = new Gauge({
    name: 'penstock_retention_last_run_timestamp_seconds',
    help: 'Unix time at which a run of the retention last finished, with or without failed months.',
    registers,
  });
  const overdue = new Gauge({
    name: 'penstock_retention_overdue',
    help: 'Months older than the retention that still have rows or unfinished files; each workspace and table counts separately.',
    registers,
  });
  const failing = new Gauge({
    name: 'penstock_retention_failing',
    help: 'Months whose last attempt failed, by task (archive, erase); each workspace and table counts separately.',
    labelNames: ['task'],
    registers,
  });
  const failures = new Counter({
    name: 'penstock_retention_failures_total',
    help: 'Failed attempts of this process, by task: archive or erase of a month, or run (all months).',
    labelNames: ['task'],
    registers,
  });
  // Until the first check the values are unknown, so the gauges are absent instead of 0.
  for (const gauge of [finished, overdue]) gauge.remove();
  return {
    failed: (task: 'archive' | 'erase' | 'run', months: number) => failures.inc({ task }, months),
    overdue: (months: number) => overdue.set(months),
    async read({ pool }: Pick<Retention, 'pool'>): Promise<void> {
      const { finishedAt, archive, erase } = await readRetentionState(pool);
      if (finishedAt !== null) finished.set(finishedAt);
      failing.set({ task: 'archive' }, archive);
      failing.set({ task: 'erase' }, erase);
    },
  };
}

type RetentionMetrics = ReturnType<typeof createRetentionMetrics>;

interface RetentionOptions {
  databaseUrl: string;
  config: RetentionConfig;
  log: Log;
  metrics: RetentionMetrics;
  /** Finds months that end their process. */
  attempts: Pick<JobAttempts, 'begin'>;
}

/**
 * Starts the scheduled retention: every sync process checks every hour, and one at a time does the work. It
 * is not done in the lanes, because writing a month takes memory and time.
 */
export function startRetention({ databaseUrl, config, log, metrics, attempts }: RetentionOptions): Service {
  const pool = openRetentionPool(databaseUrl);
  const stopping = new AbortController();

  const poller = poll(
    CHECK_MS,
    () => checkRetention({ pool, config, log, metrics, attempts, signal: stopping.signal }),
    (error) => {
      if (stopping.signal.aborted) return;
      metrics.failed('run', 1);
      log.error({ err: error }, 'retention failed; no data lost, will retry within an hour');
    },
  );
  void poller.now();
  const reader = poll(READ_MS, () => metrics.read({ pool }));
  return {
    name: 'retention',
    async stop() {
      stopping.abort(new Error('the process stops'));
      await Promise.all([poller.stop(), reader.stop()]);
      await pool.end();
    },
  };
}

/** Runs one check: does the work that is due, unless another process is doing it, and updates the metrics. */
export async function checkRetention({
  config,
  metrics,
  attempts,
  ...given
}: Omit<RetentionOptions, 'databaseUrl'> & Pick<Retention, 'pool' | 'signal'>): Promise<void> {
  const { pool, log } = given;
  const retention = {
    ...{ ...given, months: config.RETENTION_MONTHS, store: undefined, heedsBackOff: true },
    asJob: asJobOf(attempts, given.signal),
  };
  try {
    const { due } = await planRetention(retention);
    const { workspaces, months } = await planErasures(retention, {});
    const wanted = due.length + workspaces.length + months.length;
    if (config.ARCHIVE_URL === '' && wanted > 0)
      log.error(
        { months: due.length, workspaces_with_deletes: workspaces.length },
        'retention is waiting: ARCHIVE_URL is not set; see docs/retention.md',
      );
    else if (wanted === 0 || (await run(retention, { config, metrics }))) await noteFinished(pool);
  } finally {
    metrics.overdue((await planRetention(retention)).due.length);
    await metrics.read(retention);
  }
}

/**
 * Runs each month as a job, so that a month that ends its process is recorded as failed and the other months
 * continue.
 */
function asJobOf(
  attempts: RetentionOptions['attempts'],
  signal: AbortSignal | undefined,
): NonNullable<Retention['asJob']> {
  return async (id, work) => {
    const begin = () => attempts.begin('retention', id);
    const attempt = await until(begin, {
      ...{ every: SUSPECT_POLL_MS, isSo: (begun) => begun !== 'waits' },
      ...(signal && { leaving: signal }),
    });
    signal?.throwIfAborted();
    if (attempt === 'waits' || attempt === 'set aside') throw new Error(endedTheProcess('month'));
    try {
      await work();
    } finally {
      await attempt.end(signal?.aborted ? 'given back' : undefined);
    }
  };
}

/** @returns false if another process is doing the work */
async function run(
  retention: Retention,
  { config, metrics }: Pick<RetentionOptions, 'config' | 'metrics'>,
): Promise<boolean> {
  const { log } = retention;
  const store = await openArchive(config);
  try {
    const done = await runRetention({ ...retention, store }, 'archive');
    metrics.failed('archive', done?.failed ?? 0);
    if (done !== undefined && done.months + done.failed > 0)
      log.info({ ...done }, 'months were archived and dropped');
    const erased = await eraseDeleted({ ...retention, store }, {});
    metrics.failed('erase', erased?.failed ?? 0);
    if (erased !== undefined && erased.files + erased.failed > 0)
      log.info({ ...erased }, 'archive was searched for deleted users');
    return done !== undefined && erased !== undefined;
  } finally {
    store?.close();
  }
}
