import { setTimeout as sleep } from 'node:timers/promises';
import { readCpu } from './cpu.ts';

/** Cores in use below which the machine counts as free; idle servers use a few hundredths. */
const FREE = 0.3;
const LOOK_MS = 1000;

/**
 * Waits until the machine has had nothing else to do for a second, at most `patience` seconds. Where
 * that cannot be seen, not at all.
 */
export async function waitForQuiet(patience: number): Promise<void> {
  const deadline = performance.now() + patience * 1000;
  while (performance.now() < deadline) {
    const before = readCpu({}).machine;
    await sleep(LOOK_MS);
    const after = readCpu({}).machine;
    if (before === undefined || after === undefined || after - before < (FREE * LOOK_MS) / 1000) return;
  }
}
