import { DateTime } from 'luxon';
import { type ClockState, clockState, now, REAL_TIME, setClock } from '../../platform/clock.ts';
import { restartIds } from '../../platform/ids.ts';
import { pollOnce, rest } from '../../platform/poll.ts';
import type { Pool } from '../../store/database.ts';
import { setStoreClock } from '../../store/snapshots.ts';

/** A change of the clock. The members apply in this order; absent members change nothing. */
export interface ClockChange {
  /** Returns to the time of the machine. */
  real?: true;
  /** Time in ISO 8601. */
  set?: string;
  /** Seconds, or an amount with units: `3 days`. */
  advance?: string | number;
  /** True if time does not advance. */
  freeze?: boolean;
}

/** An amount such as `3 days` or `1 hour 30 minutes`. */
export const AMOUNT = '^(?:\\d+ ?(?:second|minute|hour|day|week|month|year)s?(?: |$))+$';
const PART = /(\d+) ?(second|minute|hour|day|week|month|year)s?/g;

/** Range of times for which the service can format times and create ids, in epoch milliseconds. */
const EARLIEST = Date.UTC(1971, 0);
const LATEST = Date.UTC(2200, 0);

/** Milliseconds that a request waits for work that is due. */
const DUE_MS = 5000;

/** Adds an amount of time: months and years by the calendar, in UTC. */
function later(from: number, amount: string | number): number {
  if (typeof amount === 'number') return from + amount * 1000;
  let time = DateTime.fromMillis(from, { zone: 'utc' });
  for (const [, count, unit] of amount.matchAll(PART)) time = time.plus({ [unit!]: Number(count) });
  return time.toMillis();
}

/**
 * Applies a change to the state of the clock.
 * @returns a sentence if the time is not valid
 */
export function changedClock({ real, set, advance, freeze }: ClockChange): ClockState | string {
  const machine = Date.now();
  const before = real ? REAL_TIME : clockState();
  const isFrozen = freeze ?? before.frozenAt !== null;
  let time = before.frozenAt ?? machine + before.aheadMs;
  if (set !== undefined) {
    const parsed = DateTime.fromISO(set, { zone: 'utc' });
    if (!parsed.isValid)
      return "'set' is not valid: it must be a time in ISO 8601, for example 2027-01-31T12:00:00Z";
    time = parsed.toMillis();
  }
  if (advance !== undefined) time = later(time, advance);
  // NaN if the amount is too large, so this check must be a negation.
  if (!(time >= EARLIEST && time < LATEST))
    return 'The time is not valid: it must be in the years 1971 to 2199';
  if (isFrozen) return { aheadMs: 0, frozenAt: time };
  if (set === undefined && advance === undefined && before.frozenAt === null) return before;
  return { aheadMs: time - machine, frozenAt: null };
}

/** The clocks of this process and of its Postgres, which show the same time. */
export class Clock {
  readonly #pool: Pool;
  readonly #forget: () => void;

  /** @param forget clears cached data with later times in this process */
  constructor(pool: Pool, forget: () => void) {
    this.#pool = pool;
    this.#forget = forget;
  }

  get state(): ClockState {
    return clockState();
  }

  /** Sets both clocks. No request and no job may be in progress. */
  async set(next: ClockState): Promise<void> {
    if (next === clockState()) return;
    const before = now();
    await setStoreClock(this.#pool, next);
    setClock(next);
    if (now() >= before) return;
    restartIds();
    this.#forget();
  }

  /** Starts the work that is due at the time of the clock, and waits for it up to 5 s. */
  async doDue(): Promise<void> {
    await Promise.race([pollOnce(), rest(DUE_MS)]);
  }

  show(): object {
    const { aheadMs, frozenAt } = clockState();
    const real = Date.now();
    return {
      now: new Date(now()).toISOString(),
      real_time: new Date(real).toISOString(),
      ahead_seconds: (frozenAt === null ? aheadMs : frozenAt - real) / 1000,
      frozen: frozenAt !== null,
    };
  }
}
