import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { packageRoot } from '../../../src/platform/files.ts';
import { leasePort } from '../../../test/setup/ports.ts';
import type { Contender, StoredCounts } from '../contender.ts';
import type { Environment } from '../environment.ts';
import { startProcess } from '../processes.ts';
import { generateNaiveClient } from './client.ts';

const countStored = `
  select
    (select coalesce(sum(updates), 0) from profiles)::float8 as attributes,
    (select count(*) from events)::float8 as events,
    (select count(*) from purchases)::float8 as purchases`;

/** Starts a web process and a worker of the naive pipeline on a separate database. */
export async function startNaive(environment: Environment): Promise<Contender> {
  const { folder, redisUrl } = environment;
  generateNaiveClient();
  const databaseUrl = await environment.database('naive');
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  await pool.query(readFileSync(path.join(packageRoot, 'tools/bench/naive/tables.sql'), 'utf8'));

  const port = await leasePort();
  const key = 'naive';
  const env = { REDIS_URL: redisUrl, DATABASE_URL: databaseUrl, PORT: String(port), API_KEY: key };
  const program = (file: string) => path.join(packageRoot, 'dist/tools/bench/naive', file);
  const worker = await startProcess('naive-worker', program('worker.js'), env, { folder });
  const web = await startProcess('naive-web', program('web.js'), env, {
    folder,
    readyUrl: `http://127.0.0.1:${port}/healthz`,
  });
  const stored = async () => (await pool.query<StoredCounts>(countStored)).rows[0]!;
  return {
    name: 'naive',
    target: { host: '127.0.0.1', port },
    key,
    pids: { web: web.pid, worker: worker.pid },
    settings: {},
    databaseUrl,
    pool,
    stored,
    observer: {
      source: 'rows in Postgres',
      probeEvery: 100,
      // Each read counts rows.
      readEvery: 100,
      async applied() {
        const { attributes, events, purchases } = await stored();
        return attributes + events + purchases;
      },
      isReadable: () => Promise.reject(new Error('the naive pipeline is not probed')),
      stop: async () => {},
    },
    async stop() {
      await Promise.all([pool.end(), web.stop(), worker.stop()]);
    },
  };
}

/** Inserts the users of the traffic, so that the naive pipeline also updates existing users. */
export async function seedNaive(databaseUrl: string, users: number): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client.query(
    `insert into profiles (user_id, attributes)
     select 'load-' || lpad(number::text, 8, '0'), '{"seeded": true}' from generate_series(0, $1::integer - 1) as number`,
    [users],
  );
  await client.end();
}
