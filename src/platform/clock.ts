/** Difference between the clock of the product and the clock of the machine. */
export interface ClockState {
  /** Milliseconds by which the product is ahead of the machine; negative if it is behind. */
  aheadMs: number;
  /** Epoch milliseconds at which the clock is frozen; null while it runs. */
  frozenAt: number | null;
}

/** The time of the machine. */
export const REAL_TIME: ClockState = { aheadMs: 0, frozenAt: null };

let state = REAL_TIME;

/**
 * Reads the clock of the product, in epoch milliseconds. All times that users see or that rules compare are read here. In each
 * deployment it is the clock of the machine; only `penstock dev` can set it. Timeouts, heartbeats, locks and log lines use
 * `Date.now` and `performance.now`, because they concern the machine.
 */
export function now(): number {
  return state.frozenAt ?? Date.now() + state.aheadMs;
}

export function nowDate(): Date {
  return new Date(now());
}

/** Sets the clock of this process. The clock of Postgres is `setStoreClock`. */
export function setClock(next: ClockState): void {
  state = next;
}

export function clockState(): ClockState {
  return state;
}

/** Returns whether the clock was set and differs from the clock of the machine. */
export function isClockSet(): boolean {
  return state !== REAL_TIME;
}
