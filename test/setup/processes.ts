import path from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../src/platform/files.ts';
import { type Exit, spawnOnLeash } from './leash.ts';
import { leaveBehind } from './left-behind.ts';

export interface TestProcess {
  pid: number;
  /** Parsed JSON log lines so far; a line that is not JSON is `{ text }`. */
  log: Record<string, unknown>[];
  kill(signal?: NodeJS.Signals): void;
  /** Resolves when the process has ended. */
  exit: Promise<Exit>;
}

/**
 * Speeds up starts of processes in tests, of which there are about five hundred. Tools start processes as
 * production does.
 */
export const quickly = process.env.VITEST
  ? ['--require', path.join(packageRoot, 'test/setup/packages-at-once.cjs')]
  : [];

/**
 * Starts a compiled process, for instance `dist/src/web.js`, with only `env` and the variables that every
 * program needs.
 * Killed at the end at the latest.
 */
export function startProcess(file: string, env: Record<string, string>, args: string[] = []): TestProcess {
  // Web collects the garbage of bodies, as with the command of the Procfile.
  const options = file.endsWith('src/web.js') ? ['--expose-gc'] : [];
  return startCommand([process.execPath, ...options, ...quickly, file, ...args], env, packageRoot);
}

/** Starts a command in a folder, with the same environment and end as `startProcess`. */
export function startCommand(command: string[], env: Record<string, string>, cwd: string): TestProcess {
  const { PATH, HOME, TMPDIR } = process.env;
  const { child, exit } = spawnOnLeash(command, {
    cwd,
    env: { PATH, HOME, ...(TMPDIR && { TMPDIR }), ...env },
    stdout: 'pipe',
  });
  const log: Record<string, unknown>[] = [];
  for (const stream of [child.stdout!, child.stderr!]) {
    createInterface(stream).on('line', (line) => log.push(parseLine(line)));
  }
  leaveBehind(async () => {
    child.kill('SIGKILL');
    await exit;
  });
  return { pid: child.pid!, log, kill: (signal = 'SIGTERM') => void child.kill(signal), exit };
}

function parseLine(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === 'object' && value) return value as Record<string, unknown>;
  } catch {
    // Not every line of a process is a log line.
  }
  return { text: line };
}
