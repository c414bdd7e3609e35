import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/platform/files.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';

export interface BenchProcess {
  name: string;
  pid: number;
  stop(): Promise<void>;
  /** At once. */
  kill(): Promise<void>;
}

interface StartOptions {
  /** For its errors. */
  folder: string;
  /** Absent: it counts as started at once. */
  readyUrl?: string;
  /** Options of Node that NODE_OPTIONS does not take. */
  nodeArguments?: string[];
}

/** Milliseconds until a process that does not end by itself is killed. */
const PATIENCE = 10_000;

/** Log lines are written, as in production, and go nowhere; errors go to a file of the folder. */
const quiet = 'log="$1"; shift; exec "$@" >/dev/null 2>"$log"';

/**
 * Starts a compiled process with nothing in its environment but `env` and what programs need to run at all,
 * and waits until `readyUrl` answers 200.
 * @throws {Error} with its last words when it ends instead
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
      const timer = setTimeout(() => child.kill('SIGKILL'), PATIENCE);
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
