import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import {
  forgetFleetHistory,
  isMinuteRecorded,
  type RecordedFleet,
  readFleetHistory,
  recordMinute,
} from '../store/fleet-history.ts';
import { type Fleet, living } from './fleet.ts';

/** Several looks a minute, of which the first one that succeeds is kept: none is missed for a timer that drifts. */
const LOOK_MS = 20_000;

/** Rows of this process after which it drops old ones. */
const FORGET_EVERY = 60;

/**
 * Keeps how the fleet is, a row a minute. Any number of boards may: who comes first writes the minute's row. Nothing of
 * it touches a request or a batch: it reads what heartbeats and lanes have left in the stores.
 */
export function recordHistory(pool: Pool, fleet: Fleet, log: Log): Service & { now(): Promise<void> } {
  let rows = 0;

  async function look(): Promise<void> {
    if (await isMinuteRecorded(pool)) return;
    const { processes, lanes, counters, postgres, redis } = await fleet.look();
    // While Postgres is away there is nobody to tell.
    if (!processes || !counters || !postgres) return;
    const written = await recordMinute(pool, {
      ...counters,
      depth: lanes?.map(({ depth }) => depth) ?? null,
      oldestSeconds: lanes?.map(({ oldestSeconds }) => oldestSeconds) ?? null,
      workers: living(processes, 'worker').length,
      ...{ postgresMs: postgres.latency, redisMs: redis?.latency ?? null },
    });
    if (written && rows++ % FORGET_EVERY === 0) await forgetFleetHistory(pool);
  }

  const looks = poll(LOOK_MS, look, (error) => log.debug({ err: error }, 'no row of the history'));
  void looks.now();
  return { name: 'history', now: looks.now, stop: looks.stop };
}

/** A time that a chart shows, and how it is cut. */
interface Range {
  /** The whole of it, and one point, in seconds. */
  seconds: number;
  step: number;
  /** How long a row's time is that it is made from. */
  minutes: 1 | 15;
}

export const ranges = {
  hour: { seconds: 3600, step: 60, minutes: 1 },
  day: { seconds: 86_400, step: 900, minutes: 15 },
  week: { seconds: 604_800, step: 3600, minutes: 15 },
} satisfies Record<string, Range>;

export type RangeName = keyof typeof ranges;

export const rangeNames = Object.keys(ranges) as RangeName[];

/** One point of a chart; what is undefined nobody knows. */
export interface Point {
  /** Epoch milliseconds of its beginning. */
  at: number;
  /** Objects and requests a second, since the point before. */
  accepted?: number | undefined;
  applied?: number | undefined;
  refused?: number | undefined;
  deadLetters?: number | undefined;
  /** Of all lanes. */
  waiting?: number | undefined;
  oldestSeconds?: number | undefined;
  workers?: number;
  postgresMs?: number;
  redisMs?: number | undefined;
  /** Objects a second, and jobs, by lane. */
  lanes?: { applied: number | undefined; depth: number | undefined }[];
}

/** Points that counters may lie apart for a rate: one may be missing between them. */
const MOST_APART = 2.5;

/**
 * Points of a range, the oldest first; those that nobody recorded have no values. What lies between two rows that are too
 * far apart, and what is about a counter that was set back, is not known.
 *
 * @param rows the oldest first; the first may lie before the range
 * @param now epoch milliseconds, up to which the range goes
 */
export function pointsOf(rows: readonly RecordedFleet[], { seconds, step }: Range, now: number): Point[] {
  const stepMs = step * 1000;
  const present = Math.floor(now / stepMs) * stepMs;
  const byStep = new Map<number, RecordedFleet>();
  for (const row of rows) {
    const at = Math.floor(row.at.getTime() / stepMs) * stepMs;
    const before = byStep.get(at);
    byStep.set(at, before ? joined(before, row) : row);
  }
  // The present point has its row a few seconds after it has begun.
  const end = byStep.has(present) ? present : present - stepMs;
  const count = seconds / step;
  let before: RecordedFleet | undefined = byStep.get(end - count * stepMs);
  return Array.from({ length: count }, (_, index): Point => {
    const at = end - (count - 1 - index) * stepMs;
    const row = byStep.get(at);
    if (!row) return { at };
    const apart = before ? (row.lookedAt.getTime() - before.lookedAt.getTime()) / 1000 : 0;
    const known = before && apart > 0 && apart <= MOST_APART * step ? before : undefined;
    before = row;
    return pointOf(at, row, { before: known, seconds: apart });
  });
}

function pointOf(
  at: number,
  row: RecordedFleet,
  { before, seconds }: { before: RecordedFleet | undefined; seconds: number },
): Point {
  const rate = (now: number, then: number | undefined) =>
    then === undefined || now < then ? undefined : (now - then) / seconds;
  const { depth, oldestSeconds, redisMs, workers, postgresMs } = row;
  return {
    ...{ at, workers, postgresMs, redisMs: redisMs ?? undefined },
    accepted: rate(row.accepted, before?.accepted),
    applied: rate(sum(row.applied), before && sum(before.applied)),
    refused: rate(row.refused, before?.refused),
    deadLetters: rate(row.deadLetters, before?.deadLetters),
    waiting: depth ? sum(depth) : undefined,
    oldestSeconds: oldestSeconds ? Math.max(0, ...oldestSeconds) : undefined,
    lanes: row.applied.map((objects, lane) => ({
      applied: rate(objects, before?.applied[lane]),
      depth: depth?.[lane],
    })),
  };
}

/** Two rows of one point: the later counters, the higher of what waits, the fewer workers. */
function joined(before: RecordedFleet, row: RecordedFleet): RecordedFleet {
  return {
    ...row,
    depth: highest(before.depth, row.depth),
    oldestSeconds: highest(before.oldestSeconds, row.oldestSeconds),
    workers: Math.min(before.workers, row.workers),
    postgresMs: Math.max(before.postgresMs, row.postgresMs),
    redisMs: before.redisMs === null ? row.redisMs : Math.max(before.redisMs, row.redisMs ?? 0),
  };
}

function highest(before: number[] | null, now: number[] | null): number[] | null {
  if (!before || !now) return now ?? before;
  return now.map((one, lane) => Math.max(one, before[lane] ?? 0));
}

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/** Reads the points of a range. @throws while Postgres does not answer */
export async function readHistory(pool: Pool, name: RangeName, now = Date.now()): Promise<Point[]> {
  const range = ranges[name];
  const from = new Date(now - (range.seconds + 2 * range.step) * 1000);
  return pointsOf(await readFleetHistory(pool, { minutes: range.minutes, from }), range, now);
}
