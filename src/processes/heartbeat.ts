import { hostname } from 'node:os';
import type { Readings } from '../checks/readings.ts';
import { packageVersion } from '../platform/files.ts';
import { isAlive, type Service, withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import {
  BEAT_SECONDS,
  beatProcess,
  type FleetProcess,
  forgetProcesses,
  type HeldLane,
  leaveFleet,
  listSameKind,
  type MarkLevel,
  markEnded,
  type ProcessName,
} from '../store/processes.ts';
import { type WriteRefusal, WriteRefusals } from '../store/write-refusals.ts';
import { readLastWords, removeLastWords } from './last-words.ts';

/** Number of heartbeats after which a process deletes the rows of processes that stopped long ago. */
const FORGET_EVERY = 60;

/** Maximum milliseconds for writing the row, and for deleting it while the process stops. */
const PATIENCE_MS = 4000;
const FAREWELL_MS = 1000;

/** Milliseconds for which `soon` collects changes before the row is written. */
const SOON_MS = 250;

/** The status that a process reports in its heartbeat. */
export interface Pulse {
  /** Number of objects since the start: accepted by web, applied by a worker, enqueued by sync. */
  objects(): number;
  /** Number of requests that were answered with 429 or 503 since the start. Default: 0. */
  refused?(): number;
  /** Levels of the high-water marks by name. Default: none. */
  marks?(): Record<string, MarkLevel>;
  /** Lanes from which the worker has applied an object recently. Default: none. */
  lanes?(): number[];
  /** Lanes that the worker holds. Absent if the process is not a worker. */
  held?(): HeldLane[];
  /** Why Postgres refuses the writes of the process's work; undefined while it accepts them. Default: it accepts them. */
  refusal?(): WriteRefusal | undefined;
  /** Names of the missing dependencies. */
  missing(): string[];
  /** Address of /healthz, /readyz and /metrics as `host:port`. */
  address(): string | null;
}

export interface Heartbeat extends Service {
  /** Writes the row soon instead of at the next heartbeat. */
  soon(): void;
  /** Seconds by which the clock of Postgres is ahead, at the last heartbeat. Undefined if it is older than FRESH_MS. */
  clockSkew(): number | undefined;
  /** Requests per second that were answered with 429 or 503 between the last two heartbeats. */
  refusedPerSecond(): number;
  /** Why Postgres refuses the heartbeats or the work of this process; undefined if it accepts them or does not answer. */
  rejectsWrites(): Readings['rejectsWrites'];
}

/** Milliseconds for which a measured clock difference is valid. */
const FRESH_MS = 60_000;

/**
 * Returns the difference between another clock and this process's clock, without the time of the request. All times are
 * epoch milliseconds.
 * @returns milliseconds; negative if the other clock is behind
 */
export function skewOf(now: number, { sentAt, receivedAt }: { sentAt: number; receivedAt: number }): number {
  return now < sentAt ? now - sentAt : now > receivedAt ? now - receivedAt : 0;
}

/**
 * Writes the status of this process to the table `processes` every few seconds. The console and the fleet metrics read
 * it, but no other function depends on it. A row that cannot be written is skipped.
 *
 * @param id id of the process, a UUID
 */
export function startHeartbeat(
  name: ProcessName,
  { id, pool, log }: { id: string; pool: Pool; log: Log },
  pulse: Pulse,
): Heartbeat {
  const self: FleetProcess = {
    id,
    name,
    host: hostname(),
    pid: process.pid,
    version: packageVersion,
  };
  let beats = 0;
  let refusedPerSecond = 0;
  const writes = new WriteRefusals();
  let skew: { milliseconds: number; at: number } | undefined;
  const counted = () => ({ objects: pulse.objects(), refused: pulse.refused?.() ?? 0 });
  const sample = () => ({ ...counted(), at: performance.now(), loop: performance.eventLoopUtilization() });
  let before = sample();
  let lastCounts: { objects: number; refused: number } | undefined;

  async function beat(): Promise<void> {
    const now = sample();
    const seconds = Math.max(0.001, (now.at - before.at) / 1000);
    const objectsPerSecond = Math.max(0, (now.objects - before.objects) / seconds);
    refusedPerSecond = Math.max(0, (now.refused - before.refused) / seconds);
    const loopBusy = performance.eventLoopUtilization(now.loop, before.loop).utilization;
    before = now;
    const figures = {
      ...{ address: pulse.address(), lanes: pulse.lanes?.() ?? [], missing: pulse.missing() },
      held: pulse.held?.() ?? null,
      ...{ objects: now.objects, objectsPerSecond, residentBytes: process.memoryUsage.rss(), loopBusy },
      ...{ refused: now.refused, refusedPerSecond, marks: pulse.marks?.() ?? null },
      refusal: refusalRow(pulse.refusal?.()),
    };
    const sentAt = Date.now();
    const theirs = await withTimeout(
      PATIENCE_MS,
      beatProcess(pool, self, { ...figures, previous: lastCounts }),
    );
    lastCounts = { objects: now.objects, refused: now.refused };
    skew = { milliseconds: skewOf(theirs, { sentAt, receivedAt: Date.now() }), at: performance.now() };
    writes.noteSuccess();
    if (beats === 0) await endPredecessors();
    if (beats++ % FORGET_EVERY === 0) await forgetProcesses(pool);
  }

  /** Marks processes of this kind and host as ended if they no longer run, because this process replaces them. */
  async function endPredecessors(): Promise<void> {
    for (const { id: other, pid } of await listSameKind(pool, self)) {
      if (pid !== self.pid && isAlive(pid)) continue;
      await markEnded(pool, { id: other, reason: readLastWords(other) ?? null });
      removeLastWords(other);
    }
  }

  function failed(error: unknown): void {
    log.debug({ err: error }, 'heartbeat was not written');
    writes.noteFailure(error);
  }

  // While the store is unavailable, the process logs this itself, and the fleet sees the missing heartbeat.
  const beating = poll(BEAT_SECONDS * 1000, beat, failed);
  void beating.now();
  let pending: NodeJS.Timeout | undefined;
  let ended = false;
  return {
    name: 'heartbeat',
    soon() {
      // A row written now would remain after the process has exited.
      if (ended) return;
      pending ??= setTimeout(() => {
        pending = undefined;
        void beating.now();
      }, SOON_MS);
      pending.unref();
    },
    refusedPerSecond: () => refusedPerSecond,
    clockSkew: () => (skew && performance.now() - skew.at < FRESH_MS ? skew.milliseconds / 1000 : undefined),
    rejectsWrites: () => writes.refusal ?? pulse.refusal?.(),
    async stop() {
      ended = true;
      clearTimeout(pending);
      await withTimeout(FAREWELL_MS, beating.stop()).catch(() => {});
      await withTimeout(FAREWELL_MS, leaveFleet(pool, self.id, counted())).catch(() => {});
    },
  };
}

/** Returns a refusal as the row of the process has it. */
function refusalRow(refusal: WriteRefusal | undefined): { reason: string; since: string } | null {
  return refusal ? { reason: refusal.reason, since: refusal.since.toISOString() } : null;
}
