import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { packageRoot } from '../../src/platform/files.ts';
import { leasePort } from '../../test/setup/ports.ts';
import type { Contender, StoredCounts } from './contender.ts';
import type { Environment } from './environment.ts';
import { startProcess } from './processes.ts';

const countStored = `
  select
    (select coalesce(sum(updates), 0) from profiles)::float8 as attributes,
    (select count(*) from events)::float8 as events,
    (select count(*) from purchases)::float8 as purchases`;

/** A pipeline that Penstock is compared with. */
export interface Comparison {
  /** Name of its database, in lower case. */
  name: string;
  /** Folder in tools/bench with `tables.sql`, `web.ts` and `worker.ts`. */
  folder: string;
  /** Environment variables of its worker. */
  env?: Record<string, string>;
}

/** Starts a web process and a worker of a pipeline that Penstock is compared with, on a separate database. */
export async function startComparison(
  environment: Environment,
  { name, folder, env: own }: Comparison,
): Promise<Contender> {
  const { redisUrl } = environment;
  const databaseUrl = await environment.database(name);
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  await pool.query(readFileSync(path.join(packageRoot, 'tools/bench', folder, 'tables.sql'), 'utf8'));

  const port = await leasePort();
  const env = {
    REDIS_URL: redisUrl,
    DATABASE_URL: databaseUrl,
    PORT: String(port),
    API_KEY: name,
    QUEUE: name,
  };
  const program = (file: string) => path.join(packageRoot, 'dist/tools/bench', folder, file);
  const worker = await startProcess(
    `${name}-worker`,
    program('worker.js'),
    { ...env, ...own },
    {
      folder: environment.folder,
    },
  );
  const web = await startProcess(`${name}-web`, program('web.js'), env, {
    folder: environment.folder,
    readyUrl: `http://127.0.0.1:${port}/healthz`,
  });
  const stored = async () => (await pool.query<StoredCounts>(countStored)).rows[0]!;
  return {
    name,
    target: { host: '127.0.0.1', port },
    key: name,
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
      isReadable: () => Promise.reject(new Error('this pipeline is not probed')),
      stop: async () => {},
    },
    async stop() {
      await Promise.all([pool.end(), web.stop(), worker.stop()]);
    },
  };
}

/** Inserts the users of the traffic, so that the pipeline also updates existing users. */
export async function seedComparison(databaseUrl: string, users: number): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client.query(
    `insert into profiles (user_id, attributes)
     select 'load-' || lpad(number::text, 8, '0'), '{"seeded": true}' from generate_series(0, $1::integer - 1) as number`,
    [users],
  );
  await client.end();
}
