import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { expect, test } from 'vitest';
import { ratios } from '../../tools/bench/ratios.ts';
import type { Results } from '../../tools/bench/results.ts';
import { resolveTarget } from '../../tools/load/address.ts';
import { createDatabase, startRedis, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { isLong } from '../setup/length.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess, type TestProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';

const METRICS_TOKEN = 'a-token-of-the-metrics';

/** Starts a web process and a worker on Redis, as in the Procfile. */
async function startPenstock() {
  const [{ url: databaseUrl }, redis, port] = [await createDatabase(), await startRedis(), await leasePort()];
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  const { key } = await createWorkspace(pool);
  await pool.end();
  const env = {
    DATABASE_URL: databaseUrl,
    REDIS_URL: redis.url,
    PORT: String(port),
    WORKER_PORT: '0',
    LOG_LEVEL: 'warn',
    METRICS_TOKEN,
  };
  startProcess('dist/workers/worker.js', env);
  startProcess('dist/src/web.js', env);
  const url = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${url}/readyz`)).ok, { what: 'a ready web process' });
  return { url, key, databaseUrl };
}

async function printed({ exit, log }: TestProcess): Promise<{ code: number | null; text: string }> {
  const { code } = await exit;
  return { code, text: log.map(({ text }) => text).join('\n') };
}

test('the load command reads guarded metrics, reports its traffic and deletes its probe users', async () => {
  const { url, key, databaseUrl } = await startPenstock();
  const options = ['--url', url, '--seconds', '1', '--connections', '4', '--users', '100', '--bad', '5'];
  const settings = { PENSTOCK_API_KEY: key, METRICS_TOKEN };
  const load = (more: string[], env: Record<string, string> = settings) =>
    printed(startProcess('dist/tools/load/main.js', env, [...options, ...more]));

  const without = await load([], { PENSTOCK_API_KEY: key });
  expect(without).toMatchObject({ code: 1, text: expect.stringContaining('set --metrics-token') });

  const overHttp = await load(['--rate', '20']);
  expect(overHttp.text).toMatch(/^applied +[\d,]+ objects\/s \(.*by the counters in \/metrics\)$/m);
  expect(overHttp.text).toMatch(/^accepted→readable +p50 .* ms, p99 .* ms/m);
  expect(overHttp.text).toMatch(/^ +\d+ {2}object refused: /m);
  expect(overHttp.text).not.toMatch(/NOT APPLIED|ended early|connection:/);
  expect(overHttp.code).toBe(0);

  const fromRows = await load(['--objects', '1', '--database-url', databaseUrl]);
  expect(fromRows.text).toMatch(/^applied +[\d,]+ objects\/s \(.*by rows in Postgres\)$/m);
  expect(fromRows.text).toMatch(/^accept +p50 /m);
  expect(fromRows.code).toBe(0);

  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  const probes = async () =>
    (await pool.query("select from profiles where external_id like 'probe-%'")).rowCount;
  expect(fromRows.text).toMatch(/^\d+ probe users deleted$/m);
  await waitUntil(async () => (await probes()) === 0, { what: 'the deletion of the probe users' });
  await pool.end();
});

test('the load command names the remedy when it meets the rate limit', async () => {
  const { url, key, databaseUrl } = await startPenstock();
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  await pool.query(`insert into rate_limits (workspace_id, bucket, requests, window_seconds)
    select id, 'users.track', 1, 60 from workspaces`);
  await pool.end();
  const args = ['--url', url, '--key', key, '--seconds', '0.5', '--connections', '2'];
  const { text } = await printed(startProcess('dist/tools/load/main.js', { METRICS_TOKEN }, args));
  expect(text).toMatch(/^ +\d+ {2}429 Rate Limited$/m);
  expect(text).toContain('penstock limits set --workspace default --bucket users.track --requests 100000000');
});

test('load is sent to another machine only on request', async () => {
  await expect(resolveTarget('http://192.0.2.1:3000', false)).rejects.toThrow('is not this machine');
  expect(await resolveTarget('http://192.0.2.1:3000', true)).toEqual({ host: '192.0.2.1', port: 3000 });
  expect(await resolveTarget('http://127.0.0.1:3000', false)).toEqual({ host: '127.0.0.1', port: 3000 });
});

// Measuring tools guarantee no behavior of the service, so they run in the long form.

test.runIf(isLong)('a flame graph of each process at full load is drawn', async () => {
  const folder = temporaryFolder();
  const flames = startProcess('dist/tools/bench/flames.js', {}, ['--seconds', '0.3', '--output', folder]);
  const { code, text } = await printed(flames);
  expect(code, text).toBe(0);
  expect(readFileSync(path.join(folder, 'flame-edge.svg'), 'utf8')).toContain(' src/edge/serve.ts: ');
  expect(readFileSync(path.join(folder, 'flame-worker.svg'), 'utf8')).toContain(' workers/batch/apply.ts: ');
});

test.runIf(isLong)(
  'the bench measures every row in turn, counts rows in Postgres and writes its results',
  async () => {
    const file = path.join(temporaryFolder(), 'results.json');
    const short = ['--quick', '--seconds', '0.3', '--patience', '0.1', '--growth', '20000'];
    // Other platforms have no taskset.
    const pinned = process.platform === 'linux' ? ['pinned-1-worker', 'pinned-2-workers'] : [];
    const more = ['--curve', '--soak', '0.02', ...(pinned.length > 0 ? ['--pinned'] : [])];
    const bench = startProcess('dist/tools/bench/main.js', {}, [...short, ...more, '--output', file]);
    const { code, text } = await printed(bench);
    expect(code, text).toBe(0);
    const results: Results = JSON.parse(readFileSync(file, 'utf8'));
    expect(Object.keys(results.rows)).toEqual([
      ...['ours-75', 'ours-75-identity', 'two-workers-75', 'two-lanes-75', 'embedded-75', 'naive-75', 'copy'],
      ...['ours-1', 'embedded-1', 'naive-1', 'bare-http'],
      ...[10, 100, 400].flatMap((size) => [`attributes-${size}`, `jsonb-${size}`]),
      ...['latency-70', 'latency-idle', 'queue-memory', 'backlog', 'embedded-backlog'],
      ...['merges', 'identifies', 'merge-1', 'merge-1000', 'merge-10000', 'sync'],
      ...['start-first', 'start-again', 'edge-restart'],
      ...pinned,
      ...[10, 25, 50, 70, 85, 100].map((share) => `load-${share}`),
      ...['soak', 'growth-0', 'growth-20000'],
    ]);
    for (const { median, rounds } of Object.values(results.rows)) {
      expect(median).toBeGreaterThan(0);
      expect(rounds[0]?.detail.rows).toBeGreaterThan(0);
    }
    const compared = ratios.filter(([row]) => pinned.length > 0 || !row.startsWith('pinned'));
    expect(Object.keys(results.ratios)).toEqual(compared.map(([row, over]) => `${row}/${over}`));
    expect(results.machine.postgres_settings).toMatchObject({ fsync: 'on', synchronous_commit: 'on' });
  },
  600_000,
);
