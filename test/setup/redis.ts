import { Redis } from '../../src/queue/ioredis.ts';
import { spawnOnLeash } from './leash.ts';
import { leaveBehind, temporaryFolder } from './left-behind.ts';
import { leasePort } from './ports.ts';
import { waitUntil } from './wait-until.ts';

export interface TestRedis {
  url: string;
  port: number;
  /** Data folder, which outlives `stop` and `kill`: give it to `startRedis` to start on the same data. */
  dir: string;
  pid: number;
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
}

/**
 * Starts a Redis server with production settings: every write is synced before its answer, and no key is
 * evicted.
 */
export async function startRedis(
  options: { port?: number; dir?: string; args?: string[]; server?: string } = {},
): Promise<TestRedis> {
  const port = options.port ?? (await leasePort());
  const dir = options.dir ?? temporaryFolder('penstock-redis-');
  const { child, exit } = spawnOnLeash(
    [
      options.server ?? 'redis-server',
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
  let ended = false;
  void exit.then(() => {
    ended = true;
  });
  await waitUntil(async () => ended || answersPing(url), { what: `redis-server on port ${port}` });
  if (ended) throw new Error(`redis-server on port ${port} exited before it answered`);
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
