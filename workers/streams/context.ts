import { Counter, Gauge, type Registry } from 'prom-client';
import type { Log } from '../../src/platform/log.ts';
import { rest } from '../../src/platform/poll.ts';
import { boundLabel } from '../../src/processes/metrics.ts';
import type { Pool } from '../../src/store/database.ts';
import type { DestinationRow } from '../../src/store/stream-destinations.ts';
import type { LeasedDestination } from '../../src/store/stream-leases.ts';
import type { Destination, FileDestination } from '../../src/streams/destination.ts';
import type { HeldWork } from '../jobs/held-work.ts';
import type { JobAttempts } from '../jobs/job-attempts.ts';
import type { Source } from './source.ts';

/** For how long nobody else delivers. Longer than a batch takes; files keep theirs. */
export const LEASE_MS = 30_000;

/** A destination that has got everything is looked at so often, and given back after so many looks. */
export const LOOK_MS = 100;
export const LOOKS = 20;

/** What delivering works with. */
export interface StreamContext {
  pool: Pool;
  /** Ids of the log up to it are decided. */
  horizon(): string;
  /** @throws {DeliveryError} */
  open(leased: LeasedDestination): Destination | FileDestination;
  source: Source;
  yielding: Yielding;
  /** Finds deliveries that end their processes. */
  attempts: Pick<JobAttempts, 'begin'>;
  metrics: StreamMetrics;
  log: Log;
  /** Milliseconds that one destination may keep its place while others wait for one; 10 s unless told. */
  turnMs?: number;
  /** Milliseconds after which the lease of a file is renewed; a third of it unless told. */
  keepMs?: number;
  /** Milliseconds after which a delivery without progress is abandoned; those of the lease unless told. */
  leaseMs?: number;
  /** Where deliveries in hand are shown. */
  heldWork?: HeldWork;
}

/** The same while a destination is leased. */
export interface LeasedContext extends StreamContext {
  lease: {
    /** Aborts when the lease is over, or the process leaves. */
    signal: AbortSignal;
    /** The lease was renewed in the store. */
    renew(): void;
    /** Something was delivered, and the cursor is behind it. */
    progress(): Promise<void>;
  };
}

/** What a sync process counts of streams; labels are bounded. */
export function createStreamMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ['workspace', 'destination'];
  const shownAs = boundLabel();
  const labels = ({ workspace, name }: { workspace: string; name: string }) => {
    const shown = shownAs(`${workspace}/${name}`);
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
  const gaveWay = new Counter({
    name: 'penstock_stream_yielded_seconds_total',
    help: 'Seconds for which this process delayed deliveries in favor of workers, summed over destinations.',
    registers,
  });
  return {
    note(destinations: DestinationRow[]): void {
      for (const gauge of [lag, failing, lost]) gauge.reset();
      for (const destination of destinations) {
        const named = labels(destination);
        lag.set(named, destination.lag);
        failing.set(named, destination.failures);
        lost.set(named, destination.lost);
      }
    },
    delivered: (of: { workspace: string; name: string }, messages: number) =>
      delivered.inc(labels(of), messages),
    gaveWay: (milliseconds: number) => gaveWay.inc(milliseconds / 1000),
    failed: (of: { workspace: string; name: string }) => failures.inc(labels(of)),
    abandoned: (of: { workspace: string; name: string }) => abandoned.inc(labels(of)),
  };
}

type StreamMetrics = ReturnType<typeof createStreamMetrics>;

/** Of the time in which this process wants to run, the part that it waits for others, from which on it takes it from them. */
const CONTENDED = 0.25;

/** Milliseconds after which a destination gets a page all the same, while it gives way. */
const PAGE_EVERY_MS = 5000;

/** Milliseconds between two looks whether that is over. */
const YIELD_LOOK_MS = 100;

interface YieldingOptions {
  /** Whether more waits in the lanes than workers have in hand. */
  areWorkersBehind(): boolean;
  /** As `share` of `watchProcessorWait`. */
  processorWait(): number | undefined;
  /** A destination that is so many milliseconds behind has its share, whatever waits in the lanes; 0: all always have. */
  mostMs: number;
  /** Milliseconds after which a destination gets a page all the same; 5,000 unless told. */
  pageEveryMs?: number;
  /** Hears how many milliseconds somebody has waited. */
  onWait(milliseconds: number): void;
}

/** Milliseconds since the oldest thing that is to be told took effect, now. */
type Age = () => number;

/** Ages by the clock of Postgres, which the lease came with. */
export function agesBy({ leasedAt }: Pick<LeasedDestination, 'leasedAt'>): (at: Date) => Age {
  const begun = leasedAt - performance.now();
  return (at) => () => begun + performance.now() - at.getTime();
}

/**
 * Gives way to what clients send. While workers are behind and there is no processor to spare, destinations get a page
 * every five seconds each, until they are too far behind. On a machine of its own, with time to spare, a sync process
 * never does.
 */
export function createYielding({
  areWorkersBehind,
  processorWait,
  mostMs,
  pageEveryMs = PAGE_EVERY_MS,
  onWait,
}: YieldingOptions) {
  /** Where the system does not tell, they are taken to share a machine. */
  const isNeeded = () => mostMs > 0 && areWorkersBehind() && (processorWait() ?? 1) >= CONTENDED;

  async function wait({ age, longest, until }: WaitLimits, leaving: AbortSignal): Promise<void> {
    const begun = performance.now();
    for (let now = begun; isNeeded() && now < until && age() < longest && !leaving.aborted; ) {
      await rest(Math.max(1, Math.min(YIELD_LOOK_MS, until - now)), leaving);
      now = performance.now();
    }
    const waited = performance.now() - begun;
    if (waited >= 1) onWait(waited);
  }

  return {
    isNeeded,
    /** Resolves when a page may be read. All have theirs at the same moments: what one reads then serves the others. */
    page(age: Age, leaving: AbortSignal): Promise<void> {
      const until = (Math.floor(performance.now() / pageEveryMs) + 1) * pageEveryMs;
      return wait({ age, longest: mostMs, until }, leaving);
    },
    /** Resolves when a file may be begun: at the latest when what it has to gather is as old as it may be. */
    file(age: Age, gatherMs: number, leaving: AbortSignal): Promise<void> {
      return wait({ age, longest: Math.max(gatherMs, mostMs), until: Number.POSITIVE_INFINITY }, leaving);
    },
  };
}

/** How long a wait may be. */
interface WaitLimits {
  age: Age;
  /** Milliseconds of age from which on nobody waits. */
  longest: number;
  /** When it is over, whatever the age. */
  until: number;
}

type Yielding = ReturnType<typeof createYielding>;

/** Names a stream in a line of the log. */
export const fieldsOf = ({ name, id, workspace }: Pick<LeasedDestination, 'name' | 'id' | 'workspace'>) => ({
  stream: name,
  destination: id,
  workspace,
});
