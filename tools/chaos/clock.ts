import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../src/platform/files.ts';

/** Returns the environment of a process whose clock is ahead by the given hours. */
export function wrongClock(hours: number): Record<string, string> {
  const preload = pathToFileURL(path.join(packageRoot, 'dist/tools/chaos/preload-clock.js')).href;
  return { NODE_OPTIONS: `--import ${preload}`, CHAOS_CLOCK_MS: String(hours * 3_600_000) };
}
