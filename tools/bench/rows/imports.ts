import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import path from 'node:path';
import { finished } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../../src/platform/files.ts';
import { listProcesses } from '../../../src/store/processes.ts';
import { spawnOnLeash } from '../../../test/setup/leash.ts';
import type { LatencySummary } from '../../load/latencies.ts';
import { runLoad } from '../../load/run-load.ts';
import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { measureFullRate } from '../offered-load.ts';
import type { Size } from '../size.ts';

/**
 * Objects of a live request, requests per second alongside an import, and the share of full load of the
 * heavier row.
 */
const OBJECTS = 5;
const LIGHT = 100;
const HEAVY_SHARE = 0.3;
const CONNECTIONS = 64;

/**
 * Ratio of the duration of the files to the duration of the load before them. Three commands start, which is
 * not part of the cost of a row.
 */
const FILE_DURATION_RATIO = 2;

/** Minimum seconds of live requests. With fewer, the 99th percentile depends on only a few requests. */
const LIVE_SECONDS = 20;

const DRAIN_MS = 180_000;

/** Milliseconds in which the command reads its file to the end and begins. */
const BEGIN_MS = 30_000;

const types = ['users', 'events', 'purchases'] as const;
type RowType = (typeof types)[number];

/**
 * Measures objects per second of three imports relative to live requests right before, and the latency of
 * live requests during an import.
 */
export function importRows(fleets: Fleets, environment: Environment, size: Size): BenchRow[] {
  let files = 0;

  async function fileOf(type: RowType, rows: number): Promise<string> {
    const file = path.join(environment.folder, `import-${++files}.csv`);
    const stream = createWriteStream(file);
    stream.write(headers[type]);
    for (let row = 0; row < rows; row++)
      if (!stream.write(lineOf(type, { row, user: row % size.users, file: files })))
        await once(stream, 'drain');
    stream.end();
    await finished(stream);
    return file;
  }

  async function overLoad(): Promise<Figure> {
    const ours = await fleets.ours();
    const full = await measureFullRate(ours, environment, size);
    const rows = Math.ceil((full * size.seconds * FILE_DURATION_RATIO) / types.length);
    const named = await Promise.all(types.map(async (type) => ({ type, file: await fileOf(type, rows) })));
    await quiet(ours);
    const before = await objectsOf(ours);
    const begin = performance.now();
    for (const { type, file } of named) {
      const { exit } = startImport(ours, file, type);
      const { code } = await exit;
      if (code !== 0) throw new Error(`the import of ${type} ended with ${code}`);
    }
    await appliedBy(ours, before + rows * types.length);
    const seconds = (performance.now() - begin) / 1000;
    const value = (rows * types.length) / seconds;
    return {
      value: value / full,
      unit: 'x',
      detail: { rows: rows * types.length, seconds, per_second: value, full_per_second: full },
    };
  }

  async function measureDuring(perSecond: (full: number) => number): Promise<Figure> {
    const ours = await fleets.ours();
    const full = await measureFullRate(ours, environment, size);
    const rate = perSecond(full);
    const alone = await sendLive(ours, rate);
    // The file has enough rows even for an import that does not yield at all.
    const file = await fileOf('events', Math.ceil(full * secondsOf(size) * 2));
    const importing = startImport(ours, file, 'events');
    await begun(ours, file);
    const during = await sendLive(ours, rate);
    importing.child.kill('SIGTERM');
    const { code } = await importing.exit;
    if (code === 0) throw new Error('the import was over before the live requests were');
    const rows = await rowsDone(ours, file);
    return {
      value: during.p99 / alone.p99,
      unit: 'x',
      detail: {
        ...{ rows, requests_per_second: rate, imported_per_second: rows / secondsOf(size) },
        ...{ p50_ratio: during.p50 / alone.p50 },
        ...{ alone_accept_p50_ms: alone.p50, alone_accept_p99_ms: alone.p99 },
        ...{ accept_p50_ms: during.p50, accept_p99_ms: during.p99 },
      },
    };
  }

  async function sendLive({ target, key, name }: Contender, rate: number): Promise<LatencySummary> {
    const { accept, tally } = await runLoad({
      ...{ target, key, rate, objects: OBJECTS, badShare: 0, users: size.users, connections: CONNECTIONS },
      ...{ seconds: secondsOf(size), maxRequests: Number.POSITIVE_INFINITY, probe: false, drainSeconds: 0 },
    });
    if (!accept || tally.errors.size > 0) throw new Error(`${name}: ${[...tally.errors.keys()].join('; ')}`);
    return accept;
  }

  return [
    {
      name: 'import-over-load',
      what: 'objects/s of three imported files, over those of requests of 75 right before',
      measure: overLoad,
    },
    {
      name: 'import-beside-100',
      what: `p99 of ${LIGHT} requests of ${OBJECTS} objects a second during an import, over the same without`,
      measure: () => measureDuring(() => LIGHT),
    },
    {
      name: 'import-beside-30%',
      what: `the same with requests of ${OBJECTS} objects that make ${HEAVY_SHARE * 100} % of full load`,
      measure: () => measureDuring((full) => (full * HEAVY_SHARE) / OBJECTS),
    },
  ];
}

const headers: Record<RowType, string> = {
  users: 'external_id,plan,score\n',
  events: 'external_id,name,time,size\n',
  purchases: 'external_id,product_id,currency,price,time\n',
};

function lineOf(type: RowType, { row, user, file }: { row: number; user: number; file: number }): string {
  const time = '2026-01-31T12:00:00Z';
  if (type === 'users') return `user-${user},pro-${file},${row}\n`;
  if (type === 'events') return `user-${user},imported-${row % 10},${time},${file}\n`;
  return `user-${user},product-${row % 10},EUR,${(row % 100) + file},${time}\n`;
}

function startImport({ databaseUrl, redisUrl, settings }: Contender, file: string, type: RowType) {
  const { PATH, HOME, TMPDIR } = process.env;
  const cli = path.join(packageRoot, 'dist/src/cli.js');
  const command = [process.execPath, cli, 'import', file, '--workspace', 'default', '--type', type];
  return spawnOnLeash(command, {
    env: { PATH, HOME, TMPDIR, DATABASE_URL: databaseUrl, REDIS_URL: redisUrl, ...settings },
    stdout: 'ignore',
  });
}

const secondsOf = ({ seconds }: Size) => Math.max(seconds, LIVE_SECONDS);

/**
 * Waits until no web process reports objects, because earlier requests must not count as live traffic during
 * an import.
 */
async function quiet({ pool }: Contender): Promise<void> {
  const deadline = performance.now() + BEGIN_MS;
  for (;;) {
    const processes = await listProcesses(pool);
    if (!processes.some(({ name, objectsPerSecond }) => name === 'web' && objectsPerSecond > 0)) return;
    if (performance.now() > deadline) throw new Error('web processes are not idle');
    await sleep(100);
  }
}

async function objectsOf(ours: Contender): Promise<number> {
  const { attributes, events, purchases } = await ours.stored();
  return attributes + events + purchases;
}

/** @throws {Error} if the objects are not applied in time */
async function appliedBy(ours: Contender, objects: number): Promise<void> {
  const applied = `
    select coalesce(sum(attributes + events + purchases), 0)::float8 as objects from usage`;
  const deadline = performance.now() + DRAIN_MS;
  for (;;) {
    const { rows } = await ours.pool.query<{ objects: number }>(applied);
    if (rows[0]!.objects >= objects) return;
    if (performance.now() > deadline)
      throw new Error(`${rows[0]!.objects} of ${objects} objects are applied`);
    await sleep(20);
  }
}

/** Returns the rows of an import that are in the lanes; 0 before it begins. */
async function rowsDone({ pool }: Contender, file: string): Promise<number> {
  const { rows } = await pool.query<{ rows: number }>(
    'select rows_done::float8 as rows from imports where file = $1',
    [file],
  );
  return rows[0]?.rows ?? 0;
}

async function begun(ours: Contender, file: string): Promise<void> {
  const deadline = performance.now() + BEGIN_MS;
  while ((await rowsDone(ours, file)) === 0) {
    if (performance.now() > deadline) throw new Error('the import has not begun');
    await sleep(20);
  }
}
