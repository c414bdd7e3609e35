import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { encryptCredentials, keysOf } from '../../../src/integrations/source.ts';
import { packageRoot } from '../../../src/platform/files.ts';
import { leasePort } from '../../../test/setup/ports.ts';
import { type ProbeResult, runProbes } from '../../load/probes.ts';
import { emptyTally } from '../../load/tally.ts';
import { residentMegabytes } from '../../resident-megabytes.ts';
import type { Contender } from '../contender.ts';
import type { Environment } from '../environment.ts';
import type { BenchRow, Figure } from '../figure.ts';
import type { Fleets } from '../fleets.ts';
import { startProcess } from '../processes.ts';
import type { Size } from '../size.ts';

/** Creates rows of attributes in the order of their times, for a twentieth as many users as rows. */
const fill = `
  create table users as
  select timestamptz '2026-01-01' + make_interval(secs => n * 0.001) as updated_at,
         'user-' || n % greatest($1::integer / 20, 1) as external_id,
         jsonb_build_object('plan', 'pro', 'score', n, 'city', 'city-' || n % 100, 'active', n % 2 = 0) as payload
  from generate_series(1, $1::integer) as n`;

/** Purpose of the fleet. */
const FLEET = 'synced';

/** Milliseconds between two checks of the run and its process. */
const CHECK_MS = 250;

/**
 * Measures a sync with `web`, `worker` and `sync` on a separate fleet, and a Postgres table as the warehouse.
 */
export function syncRow(
  fleets: Fleets,
  environment: Environment,
  settings: Record<string, string>,
  { syncedRows, seconds }: Size,
): { row: BenchRow; stop(): Promise<void> } {
  let started: ReturnType<typeof start> | undefined;

  async function start() {
    const ours = await fleets.scratch(FLEET);
    const key = randomBytes(32).toString('base64');
    const port = await leasePort();
    const sync = await startProcess(
      'sync',
      path.join(packageRoot, 'dist/workers/sync.js'),
      {
        REDIS_URL: ours.redisUrl!,
        DATABASE_URL: ours.databaseUrl,
        SYNC_PORT: String(port),
        INTEGRATION_KEY: key,
        ALLOWED_NETWORKS: '127.0.0.0/8,::1/128',
        ...settings,
      },
      { folder: environment.folder, readyUrl: `http://127.0.0.1:${port}/readyz` },
    );
    const warehouseUrl = await environment.database('warehouse');
    const warehouse = new pg.Client({ connectionString: warehouseUrl });
    await warehouse.connect();
    // `create table as` accepts no parameters.
    await warehouse.query(fill.replaceAll('$1', String(syncedRows)));
    await warehouse.end();
    return { key, sync, warehouseUrl };
  }

  async function measure(): Promise<Figure> {
    started ??= start();
    const { key, sync, warehouseUrl } = await started;
    const ours = await fleets.scratch(FLEET);
    const { pool } = ours;
    const alone = await probeWhile(ours, sleep(Math.min(seconds, 10) * 1000));
    const integration = await makeIntegration(pool, warehouseUrl, key);
    const response = await fetch(
      `http://127.0.0.1:${ours.target.port}/cdi/integrations/${integration}/sync`,
      {
        method: 'POST',
        headers: { authorization: `Bearer ${ours.key}` },
      },
    );
    if (response.status !== 202) throw new Error(`the sync was answered with ${response.status}`);
    const memory: number[] = [];
    const during = await probeWhile(
      ours,
      whileRunning(pool, integration, () =>
        memory.push(Math.round(residentMegabytes(sync.pid) ?? Number.NaN)),
      ),
    );
    const { rows } = await pool.query(
      `select status, rows_synced::float8 as synced, extract(epoch from finished_at - started_at)::float8 as seconds
       from sync_jobs where integration_id = $1`,
      [integration],
    );
    const [run] = rows;
    if (run.status !== 'success' || run.synced !== syncedRows)
      throw new Error(`the sync ended otherwise: ${JSON.stringify(run)}`);
    return {
      value: syncedRows / run.seconds,
      unit: '/s',
      detail: {
        rows: syncedRows,
        seconds: run.seconds,
        ...latenciesOf('alone', alone),
        ...latenciesOf('live', during),
        rss_mb_sync_early: memory[Math.floor(memory.length / 10)]!,
        rss_mb_sync_end: memory.at(-1)!,
        rss_mb_sync: Math.max(...memory),
      },
    };
  }

  return {
    row: {
      name: 'sync',
      what: 'rows/s synced from a Postgres table of attributes, and what live requests wait meanwhile',
      measure,
    },
    stop: async () => started?.then(({ sync }) => sync.stop()),
  };
}

/**
 * Sends ten live requests a second until the work is done, and measures how long each takes to become
 * readable.
 */
async function probeWhile(ours: Contender, work: Promise<unknown>): Promise<ProbeResult> {
  let over = false;
  const options = {
    ...ours.target,
    key: ours.key,
    observer: ours.observer,
    get end() {
      return over ? 0 : Number.POSITIVE_INFINITY;
    },
  };
  const probing = runProbes(options, emptyTally());
  await work.finally(() => {
    over = true;
  });
  const result = await probing;
  if (result.failure) throw new Error(result.failure);
  return result;
}

async function whileRunning(pool: pg.Pool, integration: string, sample: () => void): Promise<void> {
  const unfinished = 'select from sync_jobs where integration_id = $1 and finished_at is null';
  do {
    sample();
    await sleep(CHECK_MS);
  } while ((await pool.query(unfinished, [integration])).rowCount);
}

async function makeIntegration(pool: pg.Pool, warehouseUrl: string, key: string): Promise<string> {
  const id = uuidv7();
  const { hostname: host, port, pathname, username, password } = new URL(warehouseUrl);
  const source = {
    type: 'postgres',
    host,
    port: Number(port),
    database: pathname.slice(1),
    table: 'users',
    tls: 'off',
  };
  await pool.query(
    `insert into integrations (id, workspace_id, name, kind, warehouse_type, status, source, credentials)
     select $1, workspaces.id, $2, 'attributes', 'postgres', 'active', $3, $4 from workspaces`,
    [id, id, JSON.stringify(source), encryptCredentials({ user: username, password }, id, keysOf(key))],
  );
  return id;
}

function latenciesOf(name: string, { readable }: ProbeResult): Record<string, number> {
  if (!readable) throw new Error('no live request was accepted');
  return {
    [`${name}_p50_ms`]: readable.p50,
    [`${name}_p99_ms`]: readable.p99,
    [`${name}_max_ms`]: readable.max,
  };
}
