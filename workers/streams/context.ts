import { Counter, Gauge, type Registry } from 'prom-client';
import type { Log } from '../../src/platform/log.ts';
import { rest } from '../../src/platform/poll.ts';
import { boundLabel } from '../../src/processes/metrics.ts';
import type { Pool } from '../../src/store/database.ts';
import type { Lease } from '../../src/store/leases.ts';
import type { DestinationRow } from '../../src/store/stream-destinations.ts';
import type { LeasedDestination } from '../../src/store/stream-leases.ts';
import type { Destination, FileDestination } from '../../src/streams/destination.ts';
import type { HeldWork } from '../jobs/held-work.ts';
import type { JobAttempts } from '../jobs/job-attempts.ts';
import type { Source } from './source.ts';

/**
 * Milliseconds for which a process holds the lease of a destination. A batch takes less, and files renew
 * their lease.
 */
export const LEASE_MS = 30_000;

/**
 * Milliseconds between two reads for a destination that has received everything, and the number of such reads
 * after which its lease is given back.
 */
export const IDLE_POLL_MS = 100;
export const MAX_IDLE_POLLS = 20;

/** Dependencies of a delivery. */
export interface StreamContext {
  pool: Pool;
  /** Returns the horizon of the log: all transactions with ids up to it have ended. */
  horizon(): string;
  /** @throws {DeliveryError} */
  open(leased: LeasedDestination): Destination | FileDestination;
  source: Source;
  yielding: Yielding;
  /** Finds deliveries that end their process. */
  attempts: Pick<JobAttempts, 'begin'>;
  metrics: StreamMetrics;
  log: Log;
  /**
   * Milliseconds after which a destination with further messages gives its slot to a waiting one; default 10
   * s.
   */
  turnMs?: number;
  /** Milliseconds after which the lease of a file is renewed; default a third of the lease. */
  keepMs?: number;
  /** Milliseconds after which a delivery without progress is abandoned; default the length of the lease. */
  leaseMs?: number;
  /** Registers the deliveries in progress for display. */
  heldWork?: HeldWork;
}

/** Dependencies of a delivery with a lease. */
export interface LeasedContext extends StreamContext {
  /** Work on the delivery stops when its signal aborts. */
  lease: Lease;
  /** Must be called when a delivery was recorded in the cursor. */
  recordProgress(): Promise<void>;
}

/** Creates the stream metrics of a sync process. The number of label values is limited. */
export function createStreamMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ['workspace', 'destination'];
  const labelOf = boundLabel();
  const labels = ({ workspace, name }: { workspace: string; name: string }) => {
    const shown = labelOf(`${workspace}/${name}`);
    return shown === `${workspace}/${name}`
      ? { workspace, destination: name }
      : { workspace: shown, destination: shown };
  };
  const lag = new Gauge({
    name: 'penstock_stream_lag_seconds',
    help: 'Age in seconds of the oldest change that a destination has not received; 0 if it has received all.',
    labelNames,
    registers,
  });
  const gather = new Gauge({
    name: 'penstock_stream_gather_seconds',
    help: 'Seconds for which changes are collected before delivery; 0 if they are delivered immediately.',
    labelNames,
    registers,
  });
  const failing = new Gauge({
    name: 'penstock_stream_failing',
    help: 'Failed delivery attempts since the last success, by destination.',
    labelNames,
    registers,
  });
  const lost = new Gauge({
    name: 'penstock_stream_lost_rows',
    help: 'Rows of the stream log that were dropped before a destination received them.',
    labelNames,
    registers,
  });
  const delivered = new Counter({
    name: 'penstock_stream_delivered_total',
    help: 'Messages that this process has delivered, by destination.',
    labelNames,
    registers,
  });
  const failures = new Counter({
    name: 'penstock_stream_failures_total',
    help: 'Failed delivery attempts of this process, by destination.',
    labelNames,
    registers,
  });
  const abandoned = new Counter({
    name: 'penstock_stream_abandoned_total',
    help: 'Deliveries of this process that were abandoned because they made no progress until their lease expired, by destination.',
    labelNames,
    registers,
  });
  const yieldedSeconds = new Counter({
    name: 'penstock_stream_yielded_seconds_total',
    help: 'Seconds for which this process delayed deliveries in favor of workers, summed over destinations.',
    registers,
  });
  return {
    note(destinations: DestinationRow[]): void {
      for (const gauge of [lag, gather, failing, lost]) gauge.reset();
      for (const destination of destinations) {
        const named = labels(destination);
        lag.set(named, destination.lag);
        gather.set(named, destination.gatherMs / 1000);
        failing.set(named, destination.failures);
        lost.set(named, destination.lost);
      }
    },
    delivered: (of: { workspace: string; name: string }, messages: number) =>
      delivered.inc(labels(of), messages),
    yielded: (milliseconds: number) => yieldedSeconds.inc(milliseconds / 1000),
    failed: (of: { workspace: string; name: string }) => failures.inc(labels(of)),
    abandoned: (of: { workspace: string; name: string }) => abandoned.inc(labels(of)),
  };
}

type StreamMetrics = ReturnType<typeof createStreamMetrics>;

/**
 * Share of its runnable time that this process must have waited for a processor so that the machine counts as
 * contended.
 */
const CONTENDED_SHARE = 0.25;

/** Milliseconds after which a yielding destination may read a page in any case. */
const PAGE_EVERY_MS = 5000;

/** Milliseconds between two checks whether yielding has ended. */
const YIELD_CHECK_MS = 100;

interface YieldingOptions {
  /** Returns whether more jobs wait in the lanes than the workers are processing. */
  areWorkersBehind(): boolean;
  /**
   * Returns the share of the runnable time spent waiting for a processor, as `share` of `watchProcessorWait`.
   */
  processorWait(): number | undefined;
  /** Lag in milliseconds from which a destination no longer yields; 0 turns yielding off. */
  maxMs: number;
  /** Milliseconds after which a yielding destination may read a page in any case; default 5,000. */
  pageEveryMs?: number;
  /** Called with the milliseconds of each wait. */
  onWait(milliseconds: number): void;
}

/** Returns the current age in milliseconds of the oldest change that is not delivered. */
type Age = () => number;

/** Computes ages with the clock of Postgres at the time of the lease. */
export function agesBy({ leasedAt }: Pick<LeasedDestination, 'leasedAt'>): (at: Date) => Age {
  const startedAt = leasedAt - performance.now();
  return (at) => () => startedAt + performance.now() - at.getTime();
}

/**
 * Delays deliveries in favour of the requests of clients. While workers have a backlog and the processors are
 * contended, each destination reads one page every five seconds, until its lag is too large. A sync process
 * on a machine of its own, with idle processors, never yields.
 */
export function createYielding({
  areWorkersBehind,
  processorWait,
  maxMs,
  pageEveryMs = PAGE_EVERY_MS,
  onWait,
}: YieldingOptions) {
  /** If the system does not report processor waits, the machine counts as shared. */
  const isNeeded = () => maxMs > 0 && areWorkersBehind() && (processorWait() ?? 1) >= CONTENDED_SHARE;

  async function wait({ age, maxAgeMs, until }: WaitLimits, leaving: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    for (let now = startedAt; isNeeded() && now < until && age() < maxAgeMs && !leaving.aborted; ) {
      await rest(Math.max(1, Math.min(YIELD_CHECK_MS, until - now)), leaving);
      now = performance.now();
    }
    const waited = performance.now() - startedAt;
    if (waited >= 1) onWait(waited);
  }

  return {
    isNeeded,
    /**
     * Resolves when a page may be read. All destinations read at the same times, so that one read serves
     * several of them.
     */
    page(age: Age, leaving: AbortSignal): Promise<void> {
      const until = (Math.floor(performance.now() / pageEveryMs) + 1) * pageEveryMs;
      return wait({ age, maxAgeMs: maxMs, until }, leaving);
    },
    /**
     * Resolves when a file may be started, at the latest when its oldest change reaches `gatherMs`, or the
     * maximum age of throttled streams if that is more.
     */
    file(age: Age, gatherMs: number, leaving: AbortSignal): Promise<void> {
      return wait({ age, maxAgeMs: Math.max(gatherMs, maxMs), until: Number.POSITIVE_INFINITY }, leaving);
    },
  };
}

/** Limits of a wait. */
interface WaitLimits {
  age: Age;
  /** Age in milliseconds from which on there is no wait. */
  maxAgeMs: number;
  /** End of the wait, regardless of the age. */
  until: number;
}

type Yielding = ReturnType<typeof createYielding>;

/** Returns the fields that identify a stream in a line of the log. */
export const fieldsOf = ({ name, id, workspace }: Pick<LeasedDestination, 'name' | 'id' | 'workspace'>) => ({
  stream: name,
  destination: id,
  workspace,
});
