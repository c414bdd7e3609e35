import { living } from '../checks/text.ts';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import {
  forgetFleetHistory,
  isMinuteRecorded,
  type RecordedFleet,
  type RowMinutes,
  readFleetHistory,
  recordMinute,
} from '../store/health.ts';
import type { Fleet } from './fleet.ts';

/**
 * Milliseconds between readings. Several per minute, of which only the first success is stored, so that timer drift
 * skips no minute.
 */
const LOOK_MS = 20_000;

/** Number of rows after which this process deletes old rows. */
const FORGET_EVERY = 60;

/**
 * Records the state of the fleet, one row per minute. Several consoles may run this: the first one writes the row of
 * the minute. It only reads heartbeats, lanes and counters from the stores, so requests and batches are not affected.
 */
export function recordHistory(pool: Pool, fleet: Fleet, log: Log): Service & { now(): Promise<void> } {
  let rows = 0;

  async function record(): Promise<void> {
    if (await isMinuteRecorded(pool)) return;
    const { processes, lanes, counters, postgres, redis } = await fleet.read();
    // Without Postgres, no row can be written.
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

  const poller = poll(LOOK_MS, record, (error) => log.debug({ err: error }, 'history row was not written'));
  void poller.now();
  return { name: 'history', now: poller.now, stop: poller.stop };
}

/** A time range of a chart and its resolution. */
interface Range {
  seconds: number;
  /** Minutes per point, each from one row. */
  minutes: RowMinutes;
}

export const ranges = {
  hour: { seconds: 3600, minutes: 1 },
  day: { seconds: 86_400, minutes: 15 },
  week: { seconds: 604_800, minutes: 60 },
} satisfies Record<string, Range>;

export type RangeName = keyof typeof ranges;

export const rangeNames = Object.keys(ranges) as RangeName[];

/** A point of a chart. Unknown values are undefined. */
export interface Point {
  /** Start of the interval in epoch milliseconds. */
  at: number;
  /** Objects or requests per second since the previous point. */
  accepted?: number | undefined;
  applied?: number | undefined;
  refused?: number | undefined;
  deadLetters?: number | undefined;
  /** Total of all lanes. */
  waiting?: number | undefined;
  oldestSeconds?: number | undefined;
  workers?: number;
  postgresMs?: number;
  redisMs?: number | undefined;
  /** Applied objects per second and waiting jobs, by lane. */
  lanes?: { applied: number | undefined; depth: number | undefined }[];
}

/** Maximum distance between two rows for a rate, in points. One row may be missing between them. */
const MAX_DISTANCE = 2.5;

/**
 * Returns the points of a range, oldest first. A point without a row has no values. A rate is unknown if the previous
 * row is too old or the counter was reset.
 *
 * @param rows oldest first; the first row may be before the range
 * @param now end of the range in epoch milliseconds
 */
export function pointsOf(rows: readonly RecordedFleet[], { seconds, minutes }: Range, now: number): Point[] {
  const step = minutes * 60_000;
  const byTime = new Map(rows.map((row) => [row.at.getTime(), row]));
  const present = Math.floor(now / step) * step;
  // The row of the current point is written a few seconds after the interval starts.
  const end = byTime.has(present) ? present : present - step;
  const count = (seconds * 1000) / step;
  let before = byTime.get(end - count * step);
  return Array.from({ length: count }, (_, index): Point => {
    const at = end - (count - 1 - index) * step;
    const row = byTime.get(at);
    if (!row) return { at };
    const apart = before ? row.lookedAt.getTime() - before.lookedAt.getTime() : 0;
    const comparable = apart > 0 && apart <= MAX_DISTANCE * step ? before : undefined;
    before = row;
    return pointOf(at, row, { before: comparable, seconds: apart / 1000 });
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

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/**
 * Reads the points of a range.
 * @throws if Postgres does not answer
 */
export async function readHistory(pool: Pool, name: RangeName, now = Date.now()): Promise<Point[]> {
  const range = ranges[name];
  const from = new Date(now - (range.seconds + 2 * range.minutes * 60) * 1000);
  return pointsOf(await readFleetHistory(pool, { minutes: range.minutes, from }), range, now);
}
