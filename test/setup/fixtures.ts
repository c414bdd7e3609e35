import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, inject } from 'vitest';
import { freePort } from '../../src/embedded/ports.ts';
import { packageRoot } from '../../src/package-root.ts';
import { type Exit, spawnOnLeash } from './leash.ts';
import { TEMPLATE } from './template.ts';

/** What the tests of this file have started, in order; what a failed test left behind ends here. */
const leftBehind: (() => Promise<void> | void)[] = [];
afterAll(async () => {
  for (const stop of leftBehind.reverse()) await stop();
});

export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

/** A migrated, empty database of its own, on the test cluster. Dropped after the file at the latest. */
export function createDatabase(): Promise<TestDatabase> {
  return copyDatabase(TEMPLATE);
}

/** A database without any table of ours. */
export function createBareDatabase(): Promise<TestDatabase> {
  return copyDatabase('template1');
}

async function copyDatabase(template: string): Promise<TestDatabase> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const url = new URL(inject('postgresUrl'));
  url.pathname = name;
  // As files: otherwise every page of the template goes through the log.
  await administer(`create database ${name} template ${template} strategy file_copy`);
  const drop = () => administer(`drop database if exists ${name} with (force)`);
  leftBehind.push(drop);
  return { url: url.href, drop };
}

async function administer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  await client.query(statement).finally(() => client.end());
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
  leftBehind.push(() => end('SIGKILL'));
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
 * what programs need to run at all. Killed after the file at the latest.
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
  leftBehind.push(async () => {
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

/** A folder that is removed after the file. */
export function temporaryFolder(prefix = 'penstock-'): string {
  const dir = mkdtempSync(path.join(tmpdir(), prefix));
  leftBehind.push(() => {
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
