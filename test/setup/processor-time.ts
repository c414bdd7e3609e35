import { readFileSync } from 'node:fs';
import { afterAll } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /**
     * Seconds of processor time, user and system, of the tests of a file and of ended processes that they
     * started.
     */
    processorSeconds?: number;
  }
}

/** Clock ticks per second in /proc, the same on every Linux. */
const TICKS = 100;

/**
 * Measures the processor time of a file for the reporter of the slowest files. Has no effect without /proc.
 */
export function meterProcessorTime(): void {
  const before = processorSeconds();
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads the parameter's text, and requires a pattern
  afterAll(({}, suite) => {
    suite.file.meta.processorSeconds = processorSeconds() - before;
  });
}

function processorSeconds(): number {
  try {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    // The name of a program may have spaces and brackets, so fields are counted after it: utime, stime,
    // cutime, cstime.
    const ticks = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 15);
    return ticks.reduce((sum, tick) => sum + Number(tick), 0) / TICKS;
  } catch {
    return 0;
  }
}
