import { createHash } from 'node:crypto';
import { type Service, withTimeout } from '../../src/platform/lifecycle.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { unlessAborted } from '../../src/platform/time-limit.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import { isPostgresUnavailable, sqlstateOf } from '../../src/store/error-cause.ts';
import { watchHorizon } from '../../src/store/horizon.ts';
import { Lease, LeaseLost } from '../../src/store/leases.ts';
import { listDestinations, trimLog } from '../../src/store/stream-destinations.ts';
import {
  advanceDestination,
  type LeasedDestination,
  leaseDestinations,
  releaseDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import {
  type Batch,
  DeliveryError,
  type Destination,
  type FileDestination,
} from '../../src/streams/destination.ts';
import { type Attempt, endedTheProcess } from '../jobs/job-attempts.ts';
import {
  agesBy,
  fieldsOf,
  IDLE_POLL_MS,
  LEASE_MS,
  type LeasedContext,
  MAX_IDLE_POLLS,
  type StreamContext,
} from './context.ts';
import { deliverFile } from './deliver-file.ts';
import { type Cursor, cursorAfter, openReader, type Page } from './read.ts';
import type { ReadMessage } from './source.ts';

/** Milliseconds between two searches for destinations with messages to deliver. */
const LEASE_INTERVAL_MS = 500;
/** A process without a destination runs only every fourth search. */
const IDLE_SEARCH_FACTOR = 4;
/** Milliseconds between two reads of the horizon during a delivery. */
const HORIZON_INTERVAL_MS = 100;
/**
 * Milliseconds between two reads of the horizon in a distributed database, where each read takes a connection
 * to each node.
 */
const HORIZON_DISTRIBUTED_MS = 500;
/**
 * Milliseconds between two reads of the horizon while destinations yield and read a page every five seconds.
 */
const HORIZON_YIELDING_MS = 1000;
const METRICS_INTERVAL_MS = 10_000;
const TRIM_INTERVAL_MS = 60_000;
const TRIM_ROWS = 500;
/** Maximum number of destinations in the metrics. */
const MAX_LISTED = 200;
/**
 * Maximum number of destinations that a process delivers to concurrently. Each has a page and a batch in
 * memory.
 */
const MAX_DESTINATIONS = 16;
/** Maximum number of additional file destinations. A file may take minutes, and a part of it is in memory. */
const MAX_FILES = 8;

interface StreamsOptions {
  context: Omit<StreamContext, 'horizon'>;
  /** Days for which the log is kept. */
  days: number;
  /** Maximum number of concurrent destinations without files; default 16. */
  atOnce?: number;
}

/**
 * Delivers to the destinations of streams, each in its own loop, so that a slow or unreachable destination
 * does not delay others. Processes share the destinations by leases in Postgres. The lease of a process that
 * dies expires, and another process takes over.
 */
export function startStreams({ context, days, atOnce = MAX_DESTINATIONS }: StreamsOptions): Service {
  const { pool, metrics, log } = context;
  const leaving = new AbortController();
  const horizon = watchHorizon(pool);
  const slots = [
    { gathers: false, max: atOnce, working: new Set<Promise<void>>() },
    { gathers: true, max: MAX_FILES, working: new Set<Promise<void>>() },
  ];
  const failed = (error: unknown) => log.warn({ err: error }, 'streams are waiting for Postgres');

  async function begin({ gathers, max, working }: (typeof slots)[number]): Promise<void> {
    const limit = max - working.size;
    if (limit <= 0) return;
    const leased = await leaseDestinations(pool, { milliseconds: LEASE_MS, limit, gathers });
    // The loop of a leased destination waits for the horizon by itself.
    if (leased.length > 0) await horizon.check().catch(failed);
    for (const one of leased) {
      const work = deliverTo(one, { ...context, horizon: horizon.horizon }, leaving.signal);
      working.add(work);
      void work.finally(() => {
        working.delete(work);
        // Another destination may be waiting for the slot.
        if (!leaving.signal.aborted) void leases.now();
      });
    }
  }

  let omitted = 0;
  const leases = poll(
    LEASE_INTERVAL_MS,
    async () => {
      if (slots.every(({ working }) => working.size === 0) && ++omitted < IDLE_SEARCH_FACTOR) return;
      omitted = 0;
      for (const group of slots) await begin(group);
    },
    failed,
  );
  let readAt = Number.NEGATIVE_INFINITY;
  const horizons = poll(
    HORIZON_INTERVAL_MS,
    async () => {
      if (slots.every(({ working }) => working.size === 0)) return;
      const since = performance.now() - readAt;
      if (since < HORIZON_YIELDING_MS && context.yielding.isNeeded()) return;
      if (since < HORIZON_DISTRIBUTED_MS && (await isDistributed(pool))) return;
      await horizon.check();
      readAt = performance.now();
    },
    failed,
  );
  const numbers = poll(
    METRICS_INTERVAL_MS,
    async () => metrics.note(await listDestinations(pool, { limit: MAX_LISTED })),
    failed,
  );
  const trims = poll(
    TRIM_INTERVAL_MS,
    async () => {
      for (let gone = TRIM_ROWS; gone === TRIM_ROWS && !leaving.signal.aborted; ) {
        const trimmed = await trimLog(pool, days, TRIM_ROWS);
        gone = trimmed.gone;
        if (trimmed.lost.length > 0)
          log.error(
            { destinations: trimmed.lost, days },
            'stream log was trimmed before destinations received all changes',
          );
      }
    },
    failed,
  );
  void numbers.now();

  return {
    name: 'streams',
    async stop() {
      leaving.abort();
      await Promise.all([leases, horizons, numbers, trims].map((one) => one.stop()));
      await Promise.all(slots.flatMap(({ working }) => [...working]));
    },
  };
}

/**
 * Milliseconds after which a destination with further messages is given back, because others may be waiting
 * for a slot.
 */
const TURN_MS = 10_000;

/** Milliseconds before the first and the longest retry. The wait doubles with each failure. */
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 300_000;

/** Milliseconds in which a destination must close. A connection that hangs longer ends by its own limits. */
const CLOSING_MS = 5000;

/**
 * Milliseconds after which an abandoned delivery that has not ended is overdue: it holds memory and a
 * connection.
 */
const OVERDUE_MS = 4 * LEASE_MS;

/**
 * Milliseconds before a retry of a file without entries below the horizon. A long transaction holds the
 * horizon back.
 */
const UNDECIDED_MS = 5000;

/**
 * Thrown if a delivery made no progress before its lease expired. Other processes may then deliver, so the
 * work must stop.
 */
class LeaseOver extends DeliveryError {
  override name = 'LeaseOver';

  constructor(milliseconds: number) {
    super(`the delivery was abandoned: it made no progress for ${milliseconds / 1000} s`);
  }
}

/**
 * Delivers the messages after the cursor of a leased destination until all are delivered, its turn is over, a
 * delivery fails, or the lease is gone. It never rejects: an error is recorded with the destination, whose
 * next attempt is then due later.
 */
async function deliverTo(
  leased: LeasedDestination,
  context: StreamContext,
  leaving: AbortSignal,
): Promise<void> {
  const { pool, metrics, log } = context;
  const attempt = await beginDelivery(leased, context);
  if (!attempt) return;
  const held = context.heldWork?.begin('stream delivery', leased.id, OVERDUE_MS);
  const lease = new Lease({
    renew: () => renewDestination(pool, leased, { milliseconds: LEASE_MS }),
    ...{ milliseconds: context.leaseMs ?? LEASE_MS, leaving },
    expired: (milliseconds) => new LeaseOver(milliseconds),
    onExtended: () => held?.progress(),
  });
  let destination: Destination | FileDestination | undefined;
  let isLost = false;
  /** Frees the slot when the lease has expired, even if the work does not end. */
  const whileLeased = <T>(work: Promise<T>): Promise<T> => {
    work.catch(() => {}).finally(() => held?.end());
    return unlessAborted(lease.over, work);
  };
  const leasedContext = { ...context, lease, recordProgress: attempt.progress };
  try {
    destination = context.open(leased);
    const done = await whileLeased<'delivered' | 'undecided'>(
      'deliver' in destination
        ? deliverAll(leased, { ...leasedContext, destination })
        : deliverFile(leased, { ...leasedContext, destination }),
    );
    await releaseDestination(pool, leased, { retryMs: done === 'undecided' ? UNDECIDED_MS : 0 });
  } catch (error) {
    if (leaving.aborted) return void (await releaseDestination(pool, leased).catch(() => {}));
    if (error instanceof LeaseLost) {
      isLost = true;
      return;
    }
    if (!destination) held?.end();
    if (error instanceof DeliveryError) metrics.failed(leased);
    if (error instanceof LeaseOver) metrics.abandoned(leased);
    const { reason, isOwn } = failureOf(error);
    if (isOwn)
      log.error(
        { err: error, ...fieldsOf(leased) },
        'delivery to a stream failed because of a fault in Penstock',
      );
    else log.warn({ err: error, ...fieldsOf(leased) }, 'delivery to a stream failed');
    const backOff = { retryMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS };
    const isGone = error instanceof DeliveryError && error.isGone;
    // If the store does not respond, the lease expires by itself.
    await releaseDestination(pool, leased, { error: reason, ...backOff, pause: isGone }).catch(() => {});
  } finally {
    await lease.end();
    await attempt.end(leaving.aborted || isLost ? 'given back' : undefined);
    await withTimeout(CLOSING_MS, Promise.resolve(destination?.close())).catch((error) =>
      log.warn({ err: error, destination: leased.id }, 'destination did not close'),
    );
  }
}

/**
 * Records the attempt of a delivery. @returns undefined if the destination must not be delivered to now; its
 * lease has then been given back
 */
async function beginDelivery(
  leased: LeasedDestination,
  context: StreamContext,
): Promise<Attempt | undefined> {
  const { pool, log, attempts } = context;
  try {
    const attempt = await attempts.begin('stream delivery', leased.id);
    if (attempt === 'waits') await releaseDestination(pool, leased, { retryMs: FIRST_RETRY_MS });
    else if (attempt === 'set aside')
      await releaseDestination(pool, leased, { error: endedTheProcess('stream'), pause: true });
    else return attempt;
  } catch (error) {
    // If the store does not respond, the lease expires by itself.
    log.warn({ err: error, destination: leased.id }, 'stream is waiting for Postgres');
    await releaseDestination(pool, leased, { retryMs: FIRST_RETRY_MS }).catch(() => {});
  }
  return undefined;
}

/**
 * Returns the error message for the operator, which contains no data of a row, and whether the error is a
 * fault of Penstock.
 */
function failureOf(error: unknown): { reason: string; isOwn: boolean } {
  if (error instanceof DeliveryError) return { reason: error.message, isOwn: false };
  const sqlstate = sqlstateOf(error);
  if (sqlstate !== undefined) return { reason: `Postgres answered with the error ${sqlstate}`, isOwn: false };
  if (isPostgresUnavailable(error)) return { reason: 'Postgres did not answer', isOwn: false };
  return { reason: 'a mistake of Penstock itself: the log of the sync process has it', isOwn: true };
}

interface DeliveryContext extends LeasedContext {
  destination: Destination;
}

/** @throws {LeaseLost} if another process delivers, or the destination was stopped */
async function deliverAll(leased: LeasedDestination, context: DeliveryContext): Promise<'delivered'> {
  const leaving = context.lease.signal;
  const { workspaceId } = leased;
  const { position, place } = leased;
  const read = openReader(context.source, workspaceId, { position, place });
  const turn = context.turnMs ?? TURN_MS;
  const since = performance.now();
  const ageOf = agesBy(leased);
  const yieldOnce = (at: Date) => context.yielding.page(ageOf(at), leaving);
  for (let idlePolls = 0; idlePolls < MAX_IDLE_POLLS && !leaving.aborted; idlePolls++) {
    if (performance.now() - since >= turn) return 'delivered';
    const page = await read(context.horizon(), yieldOnce);
    if (!page) {
      await rest(IDLE_POLL_MS, leaving);
      continue;
    }
    await deliverPage(page, { leased, context });
    idlePolls = -1;
    // Let other destinations have a turn.
    await rest(0);
  }
  return 'delivered';
}

interface PageContext {
  leased: LeasedDestination;
  context: DeliveryContext;
}

/** @throws {LeaseLost} if another process delivers, or the destination was stopped */
async function deliverPage({ read, end }: Page, { leased, context }: PageContext): Promise<void> {
  const { pool, destination, metrics, lease, recordProgress } = context;
  let [batch, bytes]: [ReadMessage[], number] = [[], 0];

  async function send(cursor: Cursor): Promise<void> {
    const messages = batch.map(({ message }) => message);
    const envelopes = batch.map(({ envelope }) => envelope);
    if (messages.length > 0)
      await destination.deliver({ id: batchId(messages), messages, envelopes }, lease.signal);
    [batch, bytes] = [[], 0];
    metrics.delivered(leased, messages.length);
    const moved = { ...cursor, delivered: messages.length, milliseconds: LEASE_MS };
    await lease.extend(() => advanceDestination(pool, leased, moved));
    await recordProgress();
  }

  for (const one of read) {
    const isFull =
      batch.length === destination.limits.messages || bytes + one.bytes > destination.limits.bytes;
    if (batch.length > 0 && isFull) await send(lastOf(batch));
    batch.push(one);
    bytes += one.bytes;
  }
  await send(end);
}

/** Returns the cursor after the last message of a batch. */
function lastOf(batch: ReadMessage[]): Cursor {
  const { row, index } = batch.at(-1)!;
  return cursorAfter(row, index);
}

/**
 * Returns the id of a batch, which depends on its exact messages. A receiver that got a smaller batch before
 * does not mistake this one for a repetition.
 */
function batchId(messages: Batch['messages']): string {
  const hash = createHash('sha256').update(messages.map(({ id }) => id).join(''));
  return `msg_${hash.digest('hex').slice(0, 32)}`;
}
