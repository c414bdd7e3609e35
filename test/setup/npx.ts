import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/**
 * Writes a program `npx` that runs the compiled command for `npx penstock`, as in an installed package.
 *
 * @param folder the program is written to `bin` in this folder
 * @returns the value of PATH that finds the program first
 */
export function pathWithNpx(folder: string): string {
  const bin = path.join(folder, 'bin');
  const npx = path.join(bin, 'npx');
  const cli = path.join(packageRoot, 'dist/src/cli.js');
  mkdirSync(bin);
  writeFileSync(
    npx,
    `#!/bin/sh\n[ "$1" = penstock ] || exit 127\nshift\nexec '${process.execPath}' '${cli}' "$@"\n`,
  );
  chmodSync(npx, 0o755);
  return `${bin}:${process.env.PATH}`;
}
