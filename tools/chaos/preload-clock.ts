/** Preloaded by `--import`: shifts the clock of a process by CHAOS_CLOCK_MS. Timers are not affected. */
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
