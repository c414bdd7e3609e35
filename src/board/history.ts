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

  const looks = poll(LOOK_MS, look, (error) => log.debug({ err: error }, 'history row was not written'));
  void looks.now();
  return { name: 'history', now: looks.now, stop: looks.stop };
}

/** A time that a chart shows, and how it is cut, in seconds. */
interface Range {
  seconds: number;
  /** One point, which is one row. */
  minutes: RowMinutes;
}

export const ranges = {
  hour: { seconds: 3600, minutes: 1 },
  day: { seconds: 86_400, minutes: 15 },
  week: { seconds: 604_800, minutes: 60 },
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
export function pointsOf(rows: readonly RecordedFleet[], { seconds, minutes }: Range, now: number): Point[] {
  const step = minutes * 60_000;
  const byTime = new Map(rows.map((row) => [row.at.getTime(), row]));
  const present = Math.floor(now / step) * step;
  // The present point has its row a few seconds after it has begun.
  const end = byTime.has(present) ? present : present - step;
  const count = (seconds * 1000) / step;
  let before = byTime.get(end - count * step);
  return Array.from({ length: count }, (_, index): Point => {
    const at = end - (count - 1 - index) * step;
    const row = byTime.get(at);
    if (!row) return { at };
    const apart = before ? row.lookedAt.getTime() - before.lookedAt.getTime() : 0;
    const known = apart > 0 && apart <= MOST_APART * step ? before : undefined;
    before = row;
    return pointOf(at, row, { before: known, seconds: apart / 1000 });
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

/** Reads the points of a range. @throws while Postgres does not answer */
export async function readHistory(pool: Pool, name: RangeName, now = Date.now()): Promise<Point[]> {
  const range = ranges[name];
  const from = new Date(now - (range.seconds + 2 * range.minutes * 60) * 1000);
  return pointsOf(await readFleetHistory(pool, { minutes: range.minutes, from }), range, now);
}
