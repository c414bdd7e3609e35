import { residentMegabytes } from '../resident-megabytes.ts';

const EVERY_MS = 1000;

/**
 * Milliseconds in which a process allocates the memory that it keeps. In a shorter run, half of the run
 * counts.
 */
const WARM_UP_MS = 60_000;

/** Time of a reading in milliseconds since the start, and memory in megabytes. */
export interface Reading {
  at: number;
  mb: number;
}

/**
 * Reads the resident memory of each process once a second. `stop` returns the summary, which is empty without
 * /proc.
 */
export function watchResident(pids: Record<string, number>): { stop(): Record<string, number> } {
  const began = performance.now();
  const readings = new Map<string, Reading[]>(Object.keys(pids).map((name) => [name, []]));
  const read = () => {
    for (const [name, pid] of Object.entries(pids)) {
      const mb = residentMegabytes(pid);
      if (mb !== undefined) readings.get(name)!.push({ at: performance.now() - began, mb });
    }
  };
  read();
  const timer = setInterval(read, EVERY_MS);
  return {
    stop() {
      clearInterval(timer);
      read();
      return Object.assign({}, ...[...readings].map(([name, all]) => describeReadings(name, all)));
    },
  };
}

/**
 * Returns the megabytes of a process after its warm-up (`warm_mb_`), at the end (`last_mb_`) and at most
 * (`most_mb_`), and its growth per minute after the warm-up (`mb_per_minute_`, by linear regression).
 */
export function describeReadings(name: string, all: Reading[]): Record<string, number> {
  if (all.length < 2) return {};
  const last = all.at(-1)!;
  const warmUp = Math.min(WARM_UP_MS, last.at / 2);
  const warm = all.filter(({ at }) => at >= warmUp);
  return {
    [`warm_mb_${name}`]: Math.round(warm[0]!.mb),
    [`last_mb_${name}`]: Math.round(last.mb),
    [`most_mb_${name}`]: Math.round(Math.max(...all.map(({ mb }) => mb))),
    [`mb_per_minute_${name}`]: Math.round(slope(warm) * 60_000 * 100) / 100,
  };
}

/** Returns megabytes per millisecond. */
function slope(readings: Reading[]): number {
  const mean = (of: (reading: Reading) => number) =>
    readings.reduce((sum, reading) => sum + of(reading), 0) / readings.length;
  const [at, mb] = [mean((reading) => reading.at), mean((reading) => reading.mb)];
  const across = mean((reading) => (reading.at - at) ** 2);
  return across === 0 ? 0 : mean((reading) => (reading.at - at) * (reading.mb - mb)) / across;
}
