import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/platform/files.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';

export interface BenchProcess {
  name: string;
  pid: number;
  stop(): Promise<void>;
  /** Kills the process immediately. */
  kill(): Promise<void>;
}

interface StartOptions {
  /** Folder for the error output of the process. */
  folder: string;
  /**
   * Address that responds with 200 when the process is ready. If absent, the process counts as ready
   * immediately.
   */
  readyUrl?: string;
  /** Options of Node that are not allowed in NODE_OPTIONS. */
  nodeArguments?: string[];
}

/** Milliseconds until a process that does not stop is killed. */
const STOP_TIMEOUT_MS = 10_000;

/**
 * Script that discards standard output, so that log lines are formatted and written as in production, and
 * writes errors to a file.
 */
const quiet = 'log="$1"; shift; exec "$@" >/dev/null 2>"$log"';

/**
 * Starts a compiled process with an environment of `env` and the variables that programs need to run, and
 * waits until `readyUrl` responds with 200.
 * @throws {Error} with its error output if it ends instead
 */
export async function startProcess(
  name: string,
  file: string,
  env: Record<string, string>,
  { folder, readyUrl, nodeArguments = [] }: StartOptions,
): Promise<BenchProcess> {
  const { PATH, HOME, TMPDIR, NODE_OPTIONS } = process.env;
  const log = path.join(folder, `${name}.log`);
  const program = [process.execPath, ...nodeArguments, file];
  const { child, exit } = spawnOnLeash(['/bin/sh', '-c', quiet, 'sh', log, ...program], {
    cwd: packageRoot,
    env: {
      PATH,
      HOME,
      ...(TMPDIR && { TMPDIR }),
      ...(NODE_OPTIONS && { NODE_OPTIONS }),
      NODE_ENV: 'production',
      ...env,
    },
    stdout: 'ignore',
  });
  let ended = false;
  void exit.then(() => {
    ended = true;
  });
  while (readyUrl && !(await answers(readyUrl))) {
    if (ended) throw new Error(`${name} did not start: ${readFileSync(log, 'utf8').trim()}`);
    await sleep(50);
  }
  return {
    name,
    pid: child.pid!,
    async stop() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await exit;
      clearTimeout(timer);
    },
    async kill() {
      child.kill('SIGKILL');
      await exit;
    },
  };
}

async function answers(url: string): Promise<boolean> {
  return fetch(url).then(
    ({ status }) => status === 200,
    () => false,
  );
}
