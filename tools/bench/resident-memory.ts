import { residentMegabytes } from '../resident-megabytes.ts';

const EVERY_MS = 1000;

/** Milliseconds in which a process takes what it then keeps; of a shorter watch, half of it. */
const WARM_UP_MS = 60_000;

/** When it was read, in milliseconds from the beginning, and megabytes. */
export interface Reading {
  at: number;
  mb: number;
}

/** Reads the resident memory of each process once a second, until `stop`, which tells of it; nothing without /proc. */
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
 * Megabytes of a process at the end of its warm-up (`warm_mb_`), at the end (`last_mb_`) and at most (`most_mb_`), and
 * by how many it grew in a minute behind its warm-up (`mb_per_minute_`, the line of least squares).
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

/** Megabytes per millisecond. */
function slope(readings: Reading[]): number {
  const mean = (of: (reading: Reading) => number) =>
    readings.reduce((sum, reading) => sum + of(reading), 0) / readings.length;
  const [at, mb] = [mean((reading) => reading.at), mean((reading) => reading.mb)];
  const across = mean((reading) => (reading.at - at) ** 2);
  return across === 0 ? 0 : mean((reading) => (reading.at - at) * (reading.mb - mb)) / across;
}
