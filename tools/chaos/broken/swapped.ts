import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../src/platform/files.ts';

/**
 * The environment of a process in which one compiled module stands in for another; both as paths under `dist`.
 * `swap.ts` does it, in every process that is started with it.
 */
export function swapped(module: string, replacement: string): Record<string, string> {
  const compiled = (file: string) => pathToFileURL(path.join(packageRoot, 'dist', file)).href;
  return {
    NODE_OPTIONS: `--import ${compiled('tools/chaos/broken/swap.js')}`,
    CHAOS_SWAP: `${compiled(module)}=${compiled(replacement)}`,
  };
}
