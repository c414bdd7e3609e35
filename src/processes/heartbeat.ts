import { hostname } from 'node:os';
import { packageVersion } from '../platform/files.ts';
import { type Service, within } from '../platform/lifecycle.ts';
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
  type MarkLevel,
  type ProcessName,
} from '../store/processes.ts';

/** Rows of its own after which a process looks for those of others that fell silent long ago. */
const FORGET_EVERY = 60;

/** Milliseconds for one row, and for taking it away: a process has little time to stop. */
const PATIENCE_MS = 4000;
const FAREWELL_MS = 1000;

/** Milliseconds for which news gather before a row tells them. */
const NEWS_MS = 250;

/** What of a process only itself knows. */
export interface Pulse {
  /** Since its start: accepted by web, applied by a worker, handed to the lanes by sync. */
  objects(): number;
  /** Requests that it answered with 429 or 503 since its start; without it, none. */
  refused?(): number;
  /** What its high-water marks are held against, by name; without it, it has none. */
  marks?(): Record<string, MarkLevel>;
  /** Lanes of which it has applied something lately; without it, it works none. */
  lanes?(): number[];
  /** Those that it has open; without it, it is no worker. */
  held?(): HeldLane[];
  /** What it cannot do without and does not have, by name. */
  missing(): string[];
  /** Where its /healthz, /readyz and /metrics are, as `host:port`. */
  address(): string | null;
}

export interface Heartbeat extends Service {
  /** Has something to say that does not wait for the next row. */
  soon(): void;
  /** Seconds by which Postgres's clock is ahead of this process's, as last seen; undefined: not known lately. */
  clockSkew(): number | undefined;
}

/** Milliseconds for which a look at the clock counts. */
const FRESH_MS = 60_000;

/**
 * By how much a clock differs from ours, beside the time that asking took; all in epoch milliseconds.
 * @returns milliseconds; negative: it is behind
 */
export function skewOf(now: number, { asked, answered }: { asked: number; answered: number }): number {
  return now < asked ? now - asked : now > answered ? now - answered : 0;
}

/**
 * Heartbeat: says every few seconds in the table `processes` that this process is there, and how it is. Nothing rests on
 * it but what people see of the fleet: a row that cannot be written is left out.
 *
 * @param id of this process, a UUID
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
  let skew: { milliseconds: number; at: number } | undefined;
  const counted = () => ({ objects: pulse.objects(), refused: pulse.refused?.() ?? 0 });
  const look = () => ({ ...counted(), at: performance.now(), loop: performance.eventLoopUtilization() });
  let before = look();
  let told: { objects: number; refused: number } | undefined;

  async function beat(): Promise<void> {
    const now = look();
    const seconds = Math.max(0.001, (now.at - before.at) / 1000);
    const objectsPerSecond = Math.max(0, (now.objects - before.objects) / seconds);
    const refusedPerSecond = Math.max(0, (now.refused - before.refused) / seconds);
    const loopBusy = performance.eventLoopUtilization(now.loop, before.loop).utilization;
    before = now;
    const figures = {
      ...{ address: pulse.address(), lanes: pulse.lanes?.() ?? [], missing: pulse.missing() },
      held: pulse.held?.() ?? null,
      ...{ objects: now.objects, objectsPerSecond, residentBytes: process.memoryUsage.rss(), loopBusy },
      ...{ refused: now.refused, refusedPerSecond, marks: pulse.marks?.() ?? null },
    };
    const asked = Date.now();
    const theirs = await within(PATIENCE_MS, beatProcess(pool, self, { ...figures, told }));
    told = { objects: now.objects, refused: now.refused };
    skew = { milliseconds: skewOf(theirs, { asked, answered: Date.now() }), at: performance.now() };
    if (beats++ % FORGET_EVERY === 0) await forgetProcesses(pool);
  }

  // Where the store is away the process says so itself; the fleet sees that it is silent.
  const beating = poll(BEAT_SECONDS * 1000, beat, (error) =>
    log.debug({ err: error }, 'heartbeat was not written'),
  );
  void beating.now();
  let news: NodeJS.Timeout | undefined;
  let ended = false;
  return {
    name: 'heartbeat',
    soon() {
      // A row written now would outlive the process.
      if (ended) return;
      news ??= setTimeout(() => {
        news = undefined;
        void beating.now();
      }, NEWS_MS);
      news.unref();
    },
    clockSkew: () => (skew && performance.now() - skew.at < FRESH_MS ? skew.milliseconds / 1000 : undefined),
    async stop() {
      ended = true;
      clearTimeout(news);
      await within(FAREWELL_MS, beating.stop()).catch(() => {});
      await within(FAREWELL_MS, leaveFleet(pool, self.id, counted())).catch(() => {});
    },
  };
}
