import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../src/platform/files.ts';

/**
 * Returns the environment of a process in which one compiled module replaces another; both are paths below
 * `dist`. Every process that is started with it loads `swap.ts`.
 */
export function swapped(module: string, replacement: string): Record<string, string> {
  const compiled = (file: string) => pathToFileURL(path.join(packageRoot, 'dist', file)).href;
  return {
    NODE_OPTIONS: `--import ${compiled('tools/chaos/broken/swap.js')}`,
    CHAOS_SWAP: `${compiled(module)}=${compiled(replacement)}`,
  };
}
