import { execFile } from 'node:child_process';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { quickly } from '../setup/processes.ts';
import { BARE, type Run } from './penstock.ts';

/** Runs the compiled command in a separate process, as an operator or a script does. */
export const spawnPenstock: Run = (args, env = {}) => {
  const bare = Object.fromEntries(BARE.map((name) => [name, process.env[name]]));
  const file = path.join(packageRoot, 'dist/src/cli.js');
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [...quickly, file, ...args],
      { cwd: packageRoot, env: { ...bare, ...env } },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr }),
    );
  });
};
