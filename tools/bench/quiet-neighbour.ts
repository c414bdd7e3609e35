import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/platform/files.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';
import { runLoad } from '../load/run-load.ts';
import { readCpu } from './cpu.ts';
import type { Figure } from './figure.ts';
import type { QuietRun } from './quiet-client.ts';
import { CONNECTIONS_OF_75, type Size } from './size.ts';
import type { Tenants } from './tenants.ts';

/**
 * Seconds of noisy traffic before the measurement. By then, more objects wait than are applied in a second.
 */
const HEAD_START = 2;

/** Number of processes that noisy traffic keeps busy: web, worker, two sessions of Postgres. */
const SPINNING = 4;

/**
 * Runs work while other processes use the cores as much as noisy traffic does. Fairness in Penstock cannot
 * achieve more than this.
 */
async function whileBusy<T>(work: () => Promise<T>): Promise<T> {
  const spinning = Array.from({ length: SPINNING }, () =>
    spawnOnLeash([process.execPath, '-e', 'for (;;);'], { stdout: 'ignore' }),
  );
  try {
    return await work();
  } finally {
    for (const { child } of spinning) child.kill('SIGKILL');
    await Promise.all(spinning.map(({ exit }) => exit));
  }
}

/**
 * Measures a quiet workspace alone, then with busy cores, and then while another workspace sends as fast as
 * it gets responses.
 */
export async function besideFlood(tenants: Tenants, size: Size): Promise<Figure> {
  const quietly = () => sendQuietly(tenants, size.seconds);
  // All processes of the bench are children of this one.
  const pids = { bench: process.pid };
  const cpuBefore = readCpu(pids);
  const began = performance.now();
  const alone = await quietly();
  const others = othersBetween(cpuBefore, readCpu(pids), performance.now() - began);
  const busy = await whileBusy(quietly);
  const burst = runLoad({
    ...{ target: tenants.target, key: tenants.key, users: size.usersOfTenant * size.tenants },
    ...{ objects: 75, badShare: 0, connections: CONNECTIONS_OF_75, rate: 0, probe: false },
    ...{ seconds: size.seconds + HEAD_START, maxRequests: Number.POSITIVE_INFINITY, drainSeconds: 180 },
    observer: tenants.observer,
  });
  await sleep(HEAD_START * 1000);
  const withFlood = await quietly();
  const { tally, seconds, applied } = await burst;
  return {
    value: withFlood.readable.p99 / alone.readable.p99,
    unit: 'x',
    detail: {
      accept_ratio: withFlood.accept.p99 / alone.accept.p99,
      flood_accepted_per_second: tally.accepted / seconds,
      flood_applied_per_second: applied!.objects / applied!.seconds,
      readable_over_busy: withFlood.readable.p99 / busy.readable.p99,
      accept_over_busy: withFlood.accept.p99 / busy.accept.p99,
      ...described('alone', alone),
      ...described('busy', busy),
      ...described('beside', withFlood),
      others_cores: others,
    },
  };
}

/** Returns the cores that other programs used while the quiet workspace was alone. */
function othersBetween(before: Record<string, number>, after: Record<string, number>, took: number): number {
  const used = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
  const ours = Object.keys(after).filter((name) => name !== 'machine');
  const others = used('machine') - ours.reduce((sum, name) => sum + used(name), 0);
  return Math.round((others / took) * 1e5) / 100;
}

function described(name: string, { accept, readable, stages, lag }: QuietRun): Record<string, number> {
  const each = Object.entries({ accept, readable, ...stages });
  return {
    [`${name}_requests`]: readable.count,
    [`${name}_client_lag_p99_ms`]: lag,
    ...Object.fromEntries(
      each.flatMap(([what, { p50, p99 }]) => [
        [`${name}_${what}_p50_ms`, p50],
        [`${name}_${what}_p99_ms`, p99],
      ]),
    ),
  };
}

async function sendQuietly({ target, keys, databaseUrl }: Tenants, seconds: number): Promise<QuietRun> {
  const file = path.join(packageRoot, 'dist/tools/bench/quiet-client.js');
  const { child, exit } = spawnOnLeash([process.execPath, file], {
    env: {
      ...{ PATH: process.env.PATH, HOST: target.host, PORT: String(target.port), KEY: keys[1]! },
      ...{ DATABASE_URL: databaseUrl, SECONDS: String(seconds) },
    },
    stdout: 'pipe',
  });
  const [printed, errors, { code }] = await Promise.all([text(child.stdout!), text(child.stderr!), exit]);
  if (code !== 0) throw new Error(`the quiet client ended with ${code}: ${errors}`);
  return JSON.parse(printed) as QuietRun;
}
