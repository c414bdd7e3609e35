import { createHash } from 'node:crypto';
import { type Service, within } from '../../src/platform/lifecycle.ts';
import { poll, rest } from '../../src/platform/poll.ts';
import { unlessAborted } from '../../src/platform/time-limit.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import { isPostgresAway, sqlstateOf } from '../../src/store/error-cause.ts';
import { watchHorizon } from '../../src/store/horizon.ts';
import { listDestinations, trimLog } from '../../src/store/stream-destinations.ts';
import {
  advanceDestination,
  giveBackDestination,
  type LeasedDestination,
  leaseDestinations,
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
  LEASE_MS,
  type LeasedContext,
  LOOK_MS,
  LOOKS,
  type StreamContext,
} from './context.ts';
import { deliverFile } from './deliver-file.ts';
import { DeliveryLease, LeaseOver } from './lease.ts';
import { type Cursor, cursorBehind, openReader, type Page } from './read.ts';
import type { Told } from './source.ts';

/** How often destinations are looked for that have something to get. */
const LEASE_INTERVAL_MS = 500;
/** A process without a destination omits so many looks for one. */
const IDLE_LEASES = 4;
/** How often the horizon is looked at, while something is delivered. */
const HORIZON_INTERVAL_MS = 100;
/** The same where each look takes a connection to each node. */
const HORIZON_APART_MS = 500;
/** The same while destinations give way, and get a page every five seconds. */
const HORIZON_YIELDING_MS = 1000;
const METRICS_INTERVAL_MS = 10_000;
const TRIM_INTERVAL_MS = 60_000;
const TRIM_ROWS = 500;
/** Destinations that are told of in metrics. */
const MOST_LISTED = 200;
/** Destinations that one process delivers to at a time: each has a page and a batch in memory. */
const MOST_AT_ONCE = 16;
/** Beside those, files: one may take minutes, and has a part of it in memory. */
const MOST_FILES_AT_ONCE = 8;

interface StreamsOptions {
  context: Omit<StreamContext, 'horizon'>;
  /** Days that the log is kept. */
  days: number;
  /** Destinations at a time, those of files aside; 16 unless told. */
  atOnce?: number;
}

/**
 * Delivers to destinations of streams, each in a loop of its own, so that a slow or dead one holds up nobody else. Several
 * processes share them by leases in Postgres; that of a process that dies runs out, and another takes over.
 */
export function startStreams({ context, days, atOnce = MOST_AT_ONCE }: StreamsOptions): Service {
  const { pool, metrics, log } = context;
  const leaving = new AbortController();
  const horizon = watchHorizon(pool);
  const places = [
    { gathers: false, most: atOnce, working: new Set<Promise<void>>() },
    { gathers: true, most: MOST_FILES_AT_ONCE, working: new Set<Promise<void>>() },
  ];
  const failed = (error: unknown) => log.warn({ err: error }, 'streams are waiting for Postgres');

  async function begin({ gathers, most, working }: (typeof places)[number]): Promise<void> {
    const limit = most - working.size;
    if (limit <= 0) return;
    const leased = await leaseDestinations(pool, { milliseconds: LEASE_MS, limit, gathers });
    // Who has a lease delivers, and waits for the horizon by itself.
    if (leased.length > 0) await horizon.look().catch(failed);
    for (const one of leased) {
      const work = deliverTo(one, { ...context, horizon: horizon.horizon }, leaving.signal);
      working.add(work);
      void work.finally(() => {
        working.delete(work);
        // Somebody may wait for the place.
        if (!leaving.signal.aborted) void leases.now();
      });
    }
  }

  let omitted = 0;
  const leases = poll(
    LEASE_INTERVAL_MS,
    async () => {
      if (places.every(({ working }) => working.size === 0) && ++omitted < IDLE_LEASES) return;
      omitted = 0;
      for (const place of places) await begin(place);
    },
    failed,
  );
  let looked = Number.NEGATIVE_INFINITY;
  const horizons = poll(
    HORIZON_INTERVAL_MS,
    async () => {
      if (places.every(({ working }) => working.size === 0)) return;
      const since = performance.now() - looked;
      if (since < HORIZON_YIELDING_MS && context.yielding.isNeeded()) return;
      if (since < HORIZON_APART_MS && (await isDistributed(pool))) return;
      await horizon.look();
      looked = performance.now();
    },
    failed,
  );
  const numbers = poll(
    METRICS_INTERVAL_MS,
    async () => metrics.note(await listDestinations(pool, { limit: MOST_LISTED })),
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
      await Promise.all(places.flatMap(({ working }) => [...working]));
    },
  };
}

/** One that has always more is given back after so long: others may wait for a place. */
const TURN_MS = 10_000;

/** Milliseconds before another try: twice as long each time. */
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;

/** For a destination to close: a connection that hangs is left to its own limits. */
const CLOSING_MS = 5000;

/** A delivery that was abandoned and has not ended by then is overdue: it holds memory and a connection. */
const OVERDUE_MS = 4 * LEASE_MS;

/** Before a file is tried again of which nothing is decided: something that stays open holds the log back. */
const UNDECIDED_MS = 5000;

/**
 * Delivers what is behind the cursor of a leased destination, until it has got everything, has had its
 * turn, fails, or the lease is gone. It
 * never rejects: whatever goes wrong is noted with the destination, whose next try is due later.
 */
async function deliverTo(
  leased: LeasedDestination,
  context: StreamContext,
  leaving: AbortSignal,
): Promise<void> {
  const { pool, metrics, log } = context;
  const attempt = await beginDelivery(leased, context);
  if (!attempt) return;
  const lease = new DeliveryLease(context.leaseMs ?? LEASE_MS, leaving);
  const held = context.heldWork?.begin('stream delivery', leased.id, OVERDUE_MS);
  let destination: Destination | FileDestination | undefined;
  let isOurs = true;
  /** Frees the place when the lease is over, also where the work does not end. */
  const whileLeased = <T>(work: Promise<T>): Promise<T> => {
    work.catch(() => {}).finally(() => held?.end());
    return unlessAborted(lease.over, work);
  };
  const going = {
    ...context,
    lease: {
      signal: lease.signal,
      renew() {
        lease.renew();
        held?.progress();
      },
      progress: attempt.progress,
    },
  };
  try {
    destination = context.open(leased);
    if ('deliver' in destination) {
      isOurs = await whileLeased(deliverAll(leased, { ...going, destination }));
      if (isOurs) await giveBackDestination(pool, leased);
    } else {
      const done = await whileLeased(deliverFile(leased, { ...going, destination }));
      isOurs = done !== 'lost';
      if (isOurs)
        await giveBackDestination(pool, leased, { retryMs: done === 'undecided' ? UNDECIDED_MS : 0 });
    }
  } catch (error) {
    if (leaving.aborted) return void (await giveBackDestination(pool, leased).catch(() => {}));
    if (!destination) held?.end();
    if (error instanceof DeliveryError) metrics.failed(leased);
    if (error instanceof LeaseOver) metrics.abandoned(leased);
    const { said, isOwn } = failureOf(error);
    if (isOwn)
      log.error(
        { err: error, ...fieldsOf(leased) },
        'delivery to a stream failed because of a fault in Penstock',
      );
    else log.warn({ err: error, ...fieldsOf(leased) }, 'delivery to a stream failed');
    const backOff = { retryMs: FIRST_RETRY_MS, mostMs: LONGEST_RETRY_MS };
    const isGone = error instanceof DeliveryError && error.isGone;
    // Without an answer the lease runs out by itself.
    await giveBackDestination(pool, leased, { error: said, ...backOff, pause: isGone }).catch(() => {});
  } finally {
    lease.release();
    await attempt.end(leaving.aborted || !isOurs ? 'given back' : undefined);
    await within(CLOSING_MS, Promise.resolve(destination?.close())).catch((error) =>
      log.warn({ err: error, destination: leased.id }, 'destination did not close'),
    );
  }
}

/** Notes the attempt at a delivery. @returns undefined when nothing is to be delivered now: the lease is given back then */
async function beginDelivery(
  leased: LeasedDestination,
  context: StreamContext,
): Promise<Attempt | undefined> {
  const { pool, log, attempts } = context;
  try {
    const attempt = await attempts.begin('stream delivery', leased.id);
    if (attempt === 'waits') await giveBackDestination(pool, leased, { retryMs: FIRST_RETRY_MS });
    else if (attempt === 'set aside')
      await giveBackDestination(pool, leased, { error: endedTheProcess('stream'), pause: true });
    else return attempt;
  } catch (error) {
    // Without an answer the lease runs out by itself.
    log.warn({ err: error, destination: leased.id }, 'stream is waiting for Postgres');
    await giveBackDestination(pool, leased, { retryMs: FIRST_RETRY_MS }).catch(() => {});
  }
  return undefined;
}

/** What the operator is told: whose fault it is, and nothing that a row holds. */
function failureOf(error: unknown): { said: string; isOwn: boolean } {
  if (error instanceof DeliveryError) return { said: error.message, isOwn: false };
  const sqlstate = sqlstateOf(error);
  if (sqlstate !== undefined) return { said: `Postgres answered with the error ${sqlstate}`, isOwn: false };
  if (isPostgresAway(error)) return { said: 'Postgres did not answer', isOwn: false };
  return { said: 'a mistake of Penstock itself: the log of the sync process has it', isOwn: true };
}

interface Delivering extends LeasedContext {
  destination: Destination;
}

/** @returns whether the lease is still ours */
async function deliverAll(leased: LeasedDestination, context: Delivering): Promise<boolean> {
  const leaving = context.lease.signal;
  const { workspaceId } = leased;
  const { position, place } = leased;
  const read = openReader(context.source, workspaceId, { position, place });
  const turn = context.turnMs ?? TURN_MS;
  const since = performance.now();
  const ageOf = agesBy(leased);
  const giveWay = (at: Date) => context.yielding.page(ageOf(at), leaving);
  for (let looks = 0; looks < LOOKS && !leaving.aborted; looks++) {
    if (performance.now() - since >= turn) return true;
    const page = await read(context.horizon(), giveWay);
    if (!page) {
      await rest(LOOK_MS, leaving);
      continue;
    }
    if (!(await deliverPage(page, { leased, context }))) return false;
    looks = -1;
    // Others have their turn.
    await rest(0);
  }
  return true;
}

interface Going {
  leased: LeasedDestination;
  context: Delivering;
}

/** @returns false when the lease is gone: somebody else delivers, or nobody is to */
async function deliverPage({ read, end }: Page, { leased, context }: Going): Promise<boolean> {
  const { destination, metrics, lease } = context;
  let [batch, bytes]: [Told[], number] = [[], 0];

  async function send(cursor: Cursor): Promise<boolean> {
    const messages = batch.map(({ message }) => message);
    const envelopes = batch.map(({ envelope }) => envelope);
    if (messages.length > 0)
      await destination.deliver({ id: batchId(messages), messages, envelopes }, lease.signal);
    [batch, bytes] = [[], 0];
    metrics.delivered(leased, messages.length);
    const moved = { ...cursor, delivered: messages.length, milliseconds: LEASE_MS };
    if (!(await advanceDestination(context.pool, leased, moved))) return false;
    lease.renew();
    await lease.progress();
    return true;
  }

  for (const one of read) {
    const isFull = batch.length === destination.most.messages || bytes + one.bytes > destination.most.bytes;
    if (batch.length > 0 && isFull && !(await send(lastOf(batch)))) return false;
    batch.push(one);
    bytes += one.bytes;
  }
  return send(end);
}

/** The cursor behind all of them. */
function lastOf(batch: Told[]): Cursor {
  const { row, place } = batch.at(-1)!;
  return cursorBehind(row, place);
}

/** The same for the same messages alone: who has got fewer of them once does not take more for a repetition. */
function batchId(messages: Batch['messages']): string {
  const hash = createHash('sha256').update(messages.map(({ id }) => id).join(''));
  return `msg_${hash.digest('hex').slice(0, 32)}`;
}
