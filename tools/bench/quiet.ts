import { setTimeout as sleep } from 'node:timers/promises';
import { readCpu } from './cpu.ts';

/** Number of cores in use below which the machine counts as idle. Idle servers use a few hundredths. */
const IDLE_CORES = 0.3;
const CHECK_MS = 1000;

/**
 * Waits until the machine was idle for a second, at most `patience` seconds. It does not wait if the system
 * does not report its load.
 */
export async function waitForQuiet(patience: number): Promise<void> {
  const deadline = performance.now() + patience * 1000;
  while (performance.now() < deadline) {
    const before = readCpu({}).machine;
    await sleep(CHECK_MS);
    const after = readCpu({}).machine;
    if (before === undefined || after === undefined || after - before < (IDLE_CORES * CHECK_MS) / 1000)
      return;
  }
}
