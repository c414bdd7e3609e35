import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort } from '../../src/embedded/ports.ts';
import { packageRoot } from '../../src/package-root.ts';
import { type Exit, spawnOnLeash } from './leash.ts';

type Stop = () => Promise<unknown> | unknown;

const leftBehind: Stop[] = [];

/** Notes how to end what was started; `endLeftBehind` does it. */
export function leaveBehind(stop: Stop): void {
  leftBehind.push(stop);
}

/** Ends what was started, the latest first, where it has not ended yet. */
export async function endLeftBehind(): Promise<void> {
  for (const stop of leftBehind.splice(0).reverse()) await stop();
}

export interface TestRedis {
  url: string;
  port: number;
  /** Its folder, which outlives `stop` and `kill`: give it to `startRedis` to start on the same data. */
  dir: string;
  pid: number;
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
}

/** A Redis server as production needs it: every write on disk before its answer, nothing evicted. */
export async function startRedis(
  options: { port?: number; dir?: string; args?: string[] } = {},
): Promise<TestRedis> {
  const port = options.port ?? (await freePort());
  const dir = options.dir ?? temporaryFolder('penstock-redis-');
  const { child, exit } = spawnOnLeash(
    [
      'redis-server',
      ...['--port', String(port), '--bind', '127.0.0.1', '--dir', dir, '--save', ''],
      ...['--appendonly', 'yes', '--appendfsync', 'always', '--maxmemory-policy', 'noeviction'],
      ...(options.args ?? []),
    ],
    { stdout: 'ignore' },
  );
  const end = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await exit;
  };
  leaveBehind(() => end('SIGKILL'));
  const url = `redis://127.0.0.1:${port}`;
  await waitUntil(() => answersPing(url), { what: `redis-server on port ${port}` });
  return { url, port, dir, pid: child.pid!, stop: () => end('SIGTERM'), kill: () => end('SIGKILL') };
}

async function answersPing(url: string): Promise<boolean> {
  const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  redis.on('error', () => {});
  try {
    await redis.connect();
    return (await redis.ping()) === 'PONG';
  } catch {
    return false;
  } finally {
    redis.disconnect();
  }
}

export interface TestProcess {
  pid: number;
  /** Its JSON log lines so far, parsed; a line that is no JSON is `{ text }`. */
  log: Record<string, unknown>[];
  kill(signal?: NodeJS.Signals): void;
  /** Resolves when it has ended. */
  exit: Promise<Exit>;
}

/**
 * Starts a compiled process, for instance `dist/src/web.js`, with nothing in its environment but `env` and
 * what programs need to run at all. Killed at the end at the latest.
 */
export function startProcess(file: string, env: Record<string, string>, args: string[] = []): TestProcess {
  const { PATH, HOME, TMPDIR } = process.env;
  const { child, exit } = spawnOnLeash([process.execPath, file, ...args], {
    cwd: packageRoot,
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

/** A folder that is removed at the end. */
export function temporaryFolder(prefix = 'penstock-'): string {
  const dir = mkdtempSync(path.join(tmpdir(), prefix));
  leaveBehind(() => {
    if (existsSync(dir)) rmSync(dir, { recursive: true, force: true });
  });
  return dir;
}

/**
 * Asks again and again until the answer is truthy, and returns it. An error counts as no.
 * @throws {Error} naming `what` and the last error, `deadline` milliseconds later (default 60,000).
 */
export async function waitUntil<T>(
  condition: () => T | Promise<T>,
  { what, deadline = 60_000 }: { what: string; deadline?: number },
): Promise<NonNullable<T>> {
  const end = Date.now() + deadline;
  let last: unknown;
  for (;;) {
    try {
      last = undefined;
      const answer = await condition();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited ${deadline} ms in vain for ${what}`, { cause: last });
    await sleep(20);
  }
}
