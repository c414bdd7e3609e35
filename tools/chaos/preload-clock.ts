/**
 * Put before a process by `--import`: its clock is CHAOS_CLOCK_MS wrong. Timers go on as before.
 */
const shift = Number(process.env.CHAOS_CLOCK_MS);
const Real = Date;

globalThis.Date = class extends Real {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(Real.now() + shift);
    else super(...(given as [number]));
  }
  static override now(): number {
    return Real.now() + shift;
  }
} as DateConstructor;
