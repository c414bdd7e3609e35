import { Counter, type Registry } from 'prom-client';
import {
  type ExportFilesSettings,
  fileOfLink,
  isBucket,
  openExportFiles,
  prefixInBucket,
  removeAll,
  SegmentExportError,
  writeSegmentExport,
} from '../../src/export/segment-export.ts';
import { ObjectStoreError } from '../../src/object-store/object-store.ts';
import { LINK_HOURS } from '../../src/operations/users.export.segment.ts';
import { now } from '../../src/platform/clock.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { createCaller } from '../../src/platform/outgoing.ts';
import { poll } from '../../src/platform/poll.ts';
import { reachOf } from '../../src/platform/reach.ts';
import { linkSignals } from '../../src/platform/time-limit.ts';
import { everyStatementByIndex, openPool, type Pool } from '../../src/store/database.ts';
import { isPostgresUnavailable } from '../../src/store/error-cause.ts';
import { Lease } from '../../src/store/leases.ts';
import { EXPORT_CONNECTIONS, EXPORTS_AT_ONCE } from '../../src/store/pool-sizes.ts';
import {
  endExport,
  finishExport,
  type LeasedExport,
  leaseExports,
  releaseExport,
  renewExport,
} from '../../src/store/segment-export-leases.ts';
import {
  type ExportCounts,
  forgetExports,
  listExpired,
  noteRemoved,
} from '../../src/store/segment-exports.ts';
import type { HeldWork } from '../jobs/held-work.ts';
import { type Attempt, endedTheProcess, type JobAttempts } from '../jobs/job-attempts.ts';

/** Maximum number of callbacks that a process sends concurrently. */
const MAX_CALLBACKS = 4;
const POLL_MS = 1000;
const LEASE_MS = 60_000;
const RENEW_MS = 15_000;

/**
 * Maximum attempts to write an export, which is enough for five kills or an outage of the store of some
 * minutes.
 */
const MAX_ATTEMPTS = 5;
/** Maximum milliseconds from the request to the end of writing. */
const MAX_WRITING_MS = 86_400_000;
/** Milliseconds for which a callback is retried, while the download link is still valid. */
const CALLBACK_MS = 3_600_000;
const ANSWER_MS = 15_000;
const FIRST_RETRY_MS = 5000;
const MAX_RETRY_MS = 300_000;
/** Milliseconds without a further user or file after which an export is overdue. */
const OVERDUE_MS = 3_600_000;
/** Milliseconds until the next attempt while another job is suspected of ending its process. */
const SUSPECT_MS = 1000;
const retryAfter = (tries: number) => Math.min(FIRST_RETRY_MS * 2 ** (tries - 1), MAX_RETRY_MS);

const LINK_MS = LINK_HOURS * 3_600_000;
const TIDY_MS = 300_000;
/**
 * Milliseconds after the expiry of a link until its file is removed, because a download may still be running.
 */
const GRACE_MS = 3_600_000;
const TIDIED = 100;

interface SegmentExportsOptions {
  databaseUrl: string;
  config: ExportFilesSettings & { SERVICE_ID_FIELD: string };
  registry: Registry;
  log: Log;
  /** Finds exports that end their process. */
  attempts: Pick<JobAttempts, 'begin'>;
  /** Registers the exports in progress for display. */
  heldWork?: HeldWork;
}

/**
 * Writes the segment exports that API requests have started, and sends their callbacks. Processes share the
 * exports by leases in Postgres. The lease of a process that dies expires, and another process starts the
 * export again.
 */
export function startSegmentExports({
  databaseUrl,
  config,
  registry,
  log,
  attempts,
  heldWork,
}: SegmentExportsOptions): Service {
  // The pool is separate from the pool of syncs, because a snapshot holds a connection for the duration of
  // its export.
  const pool = openPool(databaseUrl, EXPORT_CONNECTIONS, { session: everyStatementByIndex });
  const leaving = new AbortController();
  const caller = createCaller(reachOf(config));
  const working = { open: new Set<Promise<void>>(), ready: new Set<Promise<void>>() };
  const ended = createExportMetric(registry);
  const warn = (error: unknown) => log.warn({ err: error }, 'segment exports are waiting for Postgres');

  async function lease(state: 'open' | 'ready', maxWorking: number): Promise<void> {
    const limit = maxWorking - working[state].size;
    if (limit <= 0 || leaving.signal.aborted) return;
    for (const one of await leaseExports(pool, state, { milliseconds: LEASE_MS, limit })) {
      const work = (state === 'open' ? writeOne(one) : sendCallback(one)).catch(warn);
      working[state].add(work);
      void work.finally(() => working[state].delete(work));
    }
  }

  async function writeOne(wanted: LeasedExport): Promise<void> {
    const line = { export_id: wanted.id, workspace_id: wanted.workspaceId, segment_id: wanted.segmentId };
    const left = wanted.requestedAt.getTime() + MAX_WRITING_MS - now();
    if (wanted.tries > MAX_ATTEMPTS || left <= 0) {
      const why = left <= 0 ? 'it was not complete within a day' : `${MAX_ATTEMPTS} tries failed`;
      return fail(wanted.lastError === null ? why : `${why}; the last one: ${wanted.lastError}`);
    }
    const attempt = await attempts.begin('segment export', wanted.id);
    if (attempt === 'waits') return releaseExport(pool, wanted, { retryMs: SUSPECT_MS });
    if (attempt === 'set aside') return fail(endedTheProcess('export'));
    let isElsewhere = false;
    let progress: ExportCounts = { users: 0, files: 0, bytes: 0 };
    const renew = () => renewExport(pool, wanted, { ...progress, milliseconds: LEASE_MS });
    const lease = new Lease({ renew, milliseconds: LEASE_MS });
    const ends = linkSignals({ signals: [leaving.signal, lease.over], milliseconds: left });
    const held = heldWork?.begin('segment export', wanted.id, OVERDUE_MS);
    lease.keep(RENEW_MS, { failed: warn });
    try {
      const counts = await written();
      if (!counts) {
        isElsewhere = true;
        return await releaseExport(pool, wanted, { retryMs: FIRST_RETRY_MS });
      }
      const finished = { ...counts, linkMs: LINK_MS, milliseconds: LEASE_MS };
      const ready = await lease.extend(() => finishExport(pool, wanted, finished));
      await attempt.end();
      ended.inc({ outcome: 'ready' });
      log.info({ ...line, ...counts, tries: wanted.tries }, 'a segment was exported');
      if (ready.callback !== null) await sendCallback(ready);
    } catch (error) {
      if (leaving.signal.aborted) return await releaseExport(pool, wanted, { retryMs: 0 });
      if (lease.over.aborted) return;
      const { message } = error as Error;
      const isPermanent =
        error instanceof SegmentExportError ||
        (error instanceof ObjectStoreError && error.reason === 'config');
      if (isPermanent || ends.isLate())
        return await fail(ends.isLate() ? 'it was not complete within a day' : message);
      log.warn({ ...line, err: error, tries: wanted.tries }, 'segment export failed; will retry');
      const retryMs = retryAfter(wanted.tries);
      // An outage of Postgres does not count as an attempt.
      await releaseExport(
        pool,
        wanted,
        isPostgresUnavailable(error) ? { retryMs } : { retryMs, error: message },
      );
    } finally {
      ends.release();
      held?.end();
      const isGivenBack = isElsewhere || leaving.signal.aborted || lease.over.aborted;
      await attempt.end(isGivenBack ? 'given back' : undefined);
      await lease.end();
    }

    async function written(): Promise<ExportCounts | undefined> {
      const store = await openExportFiles(config);
      try {
        return await writeSegmentExport(wanted, {
          ...{ pool, store, isBucket: isBucket(config), serviceIdField: config.SERVICE_ID_FIELD },
          leaving: ends.signal,
          async requireMine(counts) {
            progress = counts;
            await lease.confirm();
          },
          onProgress(counts) {
            progress = counts;
            held?.progress();
          },
        });
      } finally {
        store.close();
      }
    }

    async function fail(reason: string): Promise<void> {
      await endExport(pool, wanted, reason);
      ended.inc({ outcome: 'failed' });
      log.error({ ...line, reason }, 'segment export failed permanently');
    }
  }

  /**
   * Sends the callback of a completed export. If the process is killed between the response and its record,
   * the callback is sent again.
   */
  async function sendCallback(ready: LeasedExport): Promise<void> {
    const attempt = await attempts.begin('export callback', ready.id);
    if (attempt === 'waits') return releaseExport(pool, ready, { retryMs: SUSPECT_MS });
    const error = attempt === 'set aside' ? endedTheProcess('callback') : await posted(ready, attempt);
    if (leaving.signal.aborted && error !== null) return releaseExport(pool, ready, { retryMs: 0 });
    const retryMs = retryAfter(ready.tries);
    const isOver = attempt === 'set aside' || (ready.endedAt?.getTime() ?? 0) + CALLBACK_MS < now() + retryMs;
    if (error !== null && !isOver) return releaseExport(pool, ready, { retryMs, error });
    await endExport(pool, ready, error);
    ended.inc({ outcome: error === null ? 'told' : 'not_told' });
    if (error !== null)
      log.warn(
        { export_id: ready.id, error },
        'callback of a segment export could not be delivered; giving up',
      );
  }

  async function posted(ready: LeasedExport, attempt: Attempt): Promise<string | null> {
    const held = heldWork?.begin('export callback', ready.id, 4 * ANSWER_MS);
    try {
      return await post(ready);
    } finally {
      held?.end();
      await attempt.end(leaving.signal.aborted ? 'given back' : undefined);
    }
  }

  /** @returns the reason why the callback was not accepted; null if it was accepted */
  async function post({ callback, url }: LeasedExport): Promise<string | null> {
    try {
      const { status } = await caller.post(callback!, {
        headers: { 'content-type': 'application/json', 'user-agent': 'penstock' },
        body: JSON.stringify({ success: true, ...(url !== null && { url }) }),
        ...{ milliseconds: ANSWER_MS, signal: leaving.signal },
      });
      return status >= 200 && status < 300 ? null : `the callback answered ${status}`;
    } catch (error) {
      const { name, message } = error as Error;
      return `callback: ${name === 'TimeoutError' ? `no answer within ${ANSWER_MS / 1000} s` : message}`;
    }
  }

  const pollers = [
    poll(POLL_MS, () => lease('open', EXPORTS_AT_ONCE), warn),
    poll(POLL_MS, () => lease('ready', MAX_CALLBACKS), warn),
    poll(TIDY_MS, () => cleanUpExports(pool, config), warn),
  ];
  for (const poller of pollers) void poller.now();
  return {
    name: 'segment exports',
    async stop() {
      leaving.abort();
      await Promise.all(pollers.map((poller) => poller.stop()));
      await Promise.all([...working.open, ...working.ready]);
      caller.close();
      await pool.end();
    },
  };
}

export function createExportMetric(registry: Registry): Counter<'outcome'> {
  const ended = new Counter({
    name: 'penstock_segment_exports_total',
    help: 'Segment exports that this process has finished, by outcome: `ready`, `failed`, `told` (callback delivered), `not_told` (callback given up).',
    labelNames: ['outcome'],
    registers: [registry],
  });
  // Initialize the counters, so that the first failure is visible as an increase.
  for (const outcome of ['ready', 'failed', 'told', 'not_told']) ended.inc({ outcome }, 0);
  return ended;
}

/**
 * Removes files with an expired link, files of failed exports and parts that a dead process left in a folder,
 * and deletes old exports, a limited number at a time.
 */
export async function cleanUpExports(pool: Pool, config: ExportFilesSettings): Promise<void> {
  const expired = await listExpired(pool, { milliseconds: GRACE_MS, limit: TIDIED });
  if (expired.length > 0 || !isBucket(config)) {
    const store = await openExportFiles(config);
    try {
      for (const one of expired) {
        if (one.url === null) await removeAll(store, prefixInBucket(one));
        else await store.remove(fileOfLink(one));
        await noteRemoved(pool, one);
      }
      await store.sweep?.();
    } finally {
      store.close();
    }
  }
  await forgetExports(pool, TIDIED);
}
