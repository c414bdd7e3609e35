import { createHash } from 'node:crypto';
import { withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { rest } from '../../src/platform/poll.ts';
import { unlessAborted } from '../../src/platform/time-limit.ts';
import type { Pool } from '../../src/store/database.ts';
import { isPostgresUnavailable, sqlstateOf } from '../../src/store/error-cause.ts';
import { Lease, LeaseLost } from '../../src/store/leases.ts';
import {
  type LeasedDestination,
  releaseDestination,
  renewDestination,
} from '../../src/store/stream-leases.ts';
import {
  type Batch,
  DeliveryError,
  type Destination,
  type FileDestination,
} from '../../src/streams/destination.ts';
import type { HeldWork } from '../jobs/held-work.ts';
import { type Attempt, endedTheProcess, type JobAttempts } from '../jobs/job-attempts.ts';
import { deliverFile } from './deliver-file.ts';
import { fieldsOf, LEASE_MS, LeasedCursor } from './leased-cursor.ts';
import type { StreamMetrics } from './metrics.ts';
import {
  type Cursor,
  cursorAfter,
  IDLE_POLL_MS,
  type LogReading,
  MAX_IDLE_POLLS,
  openReader,
  type Page,
} from './read.ts';
import type { ReadMessage } from './source.ts';
import { agesBy } from './yielding.ts';

/** @throws {DeliveryError} */
type OpenDestination = (leased: LeasedDestination) => Destination | FileDestination;

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

/** Milliseconds that tests shorten. */
interface DeliveryTimes {
  /** After this time, a destination with further messages gives its slot to a waiting one; default 10 s. */
  turnMs?: number;
  /** After this time, the lease of a file is renewed; default a third of the lease. */
  keepMs?: number;
  /** After this time, a delivery without progress is abandoned; default the length of the lease. */
  leaseMs?: number;
}

/** Delivers to leased destinations. */
export class StreamDeliveries {
  readonly #pool: Pool;
  readonly #reading: LogReading;
  readonly #open: OpenDestination;
  readonly #attempts: Pick<JobAttempts, 'begin'>;
  readonly #metrics: Pick<StreamMetrics, 'delivered' | 'failed' | 'abandoned'>;
  readonly #log: Log;
  readonly #heldWork: Pick<HeldWork, 'begin'> | undefined;
  readonly #times: DeliveryTimes;

  constructor(parts: {
    pool: Pool;
    reading: LogReading;
    open: OpenDestination;
    /** Finds deliveries that end their process. */
    attempts: Pick<JobAttempts, 'begin'>;
    metrics: Pick<StreamMetrics, 'delivered' | 'failed' | 'abandoned'>;
    log: Log;
    /** Registers the deliveries in progress for display. */
    heldWork?: Pick<HeldWork, 'begin'>;
    times?: DeliveryTimes;
  }) {
    this.#pool = parts.pool;
    this.#reading = parts.reading;
    this.#open = parts.open;
    this.#attempts = parts.attempts;
    this.#metrics = parts.metrics;
    this.#log = parts.log;
    this.#heldWork = parts.heldWork;
    this.#times = parts.times ?? {};
  }

  /**
   * Delivers the messages after the cursor of a leased destination until all are delivered, its turn is over, a
   * delivery fails, or the lease is gone. It never rejects: an error is recorded with the destination, whose
   * next attempt is then due later.
   */
  async deliver(leased: LeasedDestination, leaving: AbortSignal): Promise<void> {
    const attempt = await this.#begin(leased);
    if (!attempt) return;
    const pool = this.#pool;
    const held = this.#heldWork?.begin('stream delivery', leased.id, OVERDUE_MS);
    const lease = new Lease({
      renew: () => renewDestination(pool, leased, { milliseconds: LEASE_MS }),
      ...{ milliseconds: this.#times.leaseMs ?? LEASE_MS, leaving },
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
    const onProgress = attempt.progress;
    const cursor = new LeasedCursor(leased, lease, { pool, metrics: this.#metrics, onProgress });
    try {
      destination = this.#open(leased);
      const done = await whileLeased<'delivered' | 'undecided'>(this.#deliverAs(destination, cursor));
      await releaseDestination(pool, leased, { retryMs: done === 'undecided' ? UNDECIDED_MS : 0 });
    } catch (error) {
      if (leaving.aborted) return void (await releaseDestination(pool, leased).catch(() => {}));
      if (error instanceof LeaseLost) {
        isLost = true;
        return;
      }
      if (!destination) held?.end();
      if (error instanceof DeliveryError) this.#metrics.failed(leased);
      if (error instanceof LeaseOver) this.#metrics.abandoned(leased);
      await this.#giveBackFailed(leased, error);
    } finally {
      await lease.end();
      await attempt.end(leaving.aborted || isLost ? 'given back' : undefined);
      await withTimeout(CLOSING_MS, Promise.resolve(destination?.close())).catch((error) =>
        this.#log.warn({ err: error, destination: leased.id }, 'destination did not close'),
      );
    }
  }

  #deliverAs(
    destination: Destination | FileDestination,
    cursor: LeasedCursor,
  ): Promise<'delivered' | 'undecided'> {
    const reading = this.#reading;
    const { turnMs, keepMs } = this.#times;
    return 'deliver' in destination
      ? deliverAll(destination, cursor, { reading, turnMs })
      : deliverFile(destination, cursor, { reading, keepMs, log: this.#log });
  }

  /** Records why a delivery has failed, and gives the lease back until the next attempt is due. */
  async #giveBackFailed(leased: LeasedDestination, error: unknown): Promise<void> {
    const { reason, isOwn } = failureOf(error);
    if (isOwn)
      this.#log.error(
        { err: error, ...fieldsOf(leased) },
        'delivery to a stream failed because of a fault in Penstock',
      );
    else this.#log.warn({ err: error, ...fieldsOf(leased) }, 'delivery to a stream failed');
    const backOff = { retryMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS };
    const isGone = error instanceof DeliveryError && error.isGone;
    // If the store does not respond, the lease expires by itself.
    await releaseDestination(this.#pool, leased, { error: reason, ...backOff, pause: isGone }).catch(
      () => {},
    );
  }

  /**
   * Records the attempt of a delivery. @returns undefined if the destination must not be delivered to now; its
   * lease has then been given back
   */
  async #begin(leased: LeasedDestination): Promise<Attempt | undefined> {
    const pool = this.#pool;
    try {
      const attempt = await this.#attempts.begin('stream delivery', leased.id);
      if (attempt === 'waits') await releaseDestination(pool, leased, { retryMs: FIRST_RETRY_MS });
      else if (attempt === 'set aside')
        await releaseDestination(pool, leased, { error: endedTheProcess('stream'), pause: true });
      else return attempt;
    } catch (error) {
      // If the store does not respond, the lease expires by itself.
      this.#log.warn({ err: error, destination: leased.id }, 'stream is waiting for Postgres');
      await releaseDestination(pool, leased, { retryMs: FIRST_RETRY_MS }).catch(() => {});
    }
    return undefined;
  }
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

/** @throws {LeaseLost} if another process delivers, or the destination was stopped */
async function deliverAll(
  destination: Destination,
  cursor: LeasedCursor,
  { reading, turnMs = TURN_MS }: { reading: LogReading; turnMs?: number | undefined },
): Promise<'delivered'> {
  const { leased } = cursor;
  const leaving = cursor.lease.signal;
  const { workspaceId, position, place } = leased;
  const read = openReader(reading.source, workspaceId, { position, place });
  const since = performance.now();
  const ageOf = agesBy(leased);
  const yieldOnce = (at: Date) => reading.yielding.page(ageOf(at), leaving);
  for (let idlePolls = 0; idlePolls < MAX_IDLE_POLLS && !leaving.aborted; idlePolls++) {
    if (performance.now() - since >= turnMs) return 'delivered';
    const page = await read(reading.horizon(), yieldOnce);
    if (!page) {
      await rest(IDLE_POLL_MS, leaving);
      continue;
    }
    await deliverPage(page, destination, cursor);
    idlePolls = -1;
    // Let other destinations have a turn.
    await rest(0);
  }
  return 'delivered';
}

/** @throws {LeaseLost} if another process delivers, or the destination was stopped */
async function deliverPage(
  { read, end }: Page,
  destination: Destination,
  cursor: LeasedCursor,
): Promise<void> {
  let [batch, bytes]: [ReadMessage[], number] = [[], 0];

  async function send(until: Cursor): Promise<void> {
    const messages = batch.map(({ message }) => message);
    const envelopes = batch.map(({ envelope }) => envelope);
    if (messages.length > 0)
      await destination.deliver({ id: batchId(messages), messages, envelopes }, cursor.lease.signal);
    [batch, bytes] = [[], 0];
    cursor.count(messages.length);
    await cursor.advance(until, messages.length);
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
