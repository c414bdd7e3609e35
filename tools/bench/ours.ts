import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { encryptCredentials, keysOf } from '../../src/integrations/source.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { bootstrap, migrate } from '../../src/processes/migrate.ts';
import { parseProcfile } from '../../src/start/processes.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { newWebhookSecret } from '../../src/streams/webhook.ts';
import { leasePort } from '../../test/setup/ports.ts';
import { observeDatabase } from '../load/database-observer.ts';
import type { Contender, StoredCounts } from './contender.ts';
import type { Environment } from './environment.ts';
import { type BenchProcess, startProcess } from './processes.ts';

const procfile = parseProcfile(readFileSync(path.join(packageRoot, 'Procfile'), 'utf8'));

/** Reads the rows, and the counters that the workers update in the same transactions. */
const countStored = `
  select
    (select coalesce(sum(attributes), 0) from usage)::float8 as attributes,
    (select coalesce(sum(events), 0) from usage)::float8 as "countedEvents",
    (select coalesce(sum(purchases), 0) from usage)::float8 as "countedPurchases",
    (select coalesce(sum(identity), 0) from usage)::float8 as identity,
    (select coalesce(sum(objects), 0) from lane_totals)::float8 as "countedObjects",
    (select count(*) from dead_letters)::float8 as "deadLetters",
    (select count(*) from events)::float8 as events,
    (select count(*) from purchases)::float8 as purchases`;

/** Sets a limit for each workspace that no measurement reaches. */
export const raiseLimit = `
  insert into rate_limits (workspace_id, bucket, requests, window_seconds)
  select workspaces.id, bucket, 100000000, 60
  from workspaces, unnest(array['users.track', 'users.identity']) as bucket
  on conflict do nothing`;

/** Distinguishes one of several installations in the same environment. */
interface Placement {
  /** Name of its database. */
  name: string;
  /** Number of its Redis database. If absent, the queue is in Postgres. */
  redis?: number;
  workers?: number;
  /** Address of the webhooks of two streams. If set, a `sync` process runs as well. */
  streamsTo?: string;
  /**
   * Folder for a CPU profile of each process, which is written when it ends: `web.cpuprofile`,
   * `worker.cpuprofile`.
   */
  profiles?: string;
}

/** Starts `web` and `worker` as in the Procfile, with `settings` in their environment. */
export async function startOurs(
  environment: Environment,
  settings: Record<string, string>,
  placement: Placement,
): Promise<Contender> {
  const { folder } = environment;
  const redisUrl = placement.redis === undefined ? undefined : `${environment.redisUrl}/${placement.redis}`;
  const databaseUrl = await environment.database(placement.name);
  await migrate(databaseUrl, placement.redis === undefined ? 'postgres' : 'redis');
  const key = `bench-${randomBytes(16).toString('hex')}`;
  await prepareWorkspace(databaseUrl, key);

  const [port, workerPort] = [await leasePort(), await leasePort()];
  const env = {
    ...(redisUrl && { REDIS_URL: redisUrl }),
    DATABASE_URL: databaseUrl,
    PORT: String(port),
    WORKER_PORT: String(workerPort),
    ...settings,
  };
  const profiled = (process: string) =>
    placement.profiles === undefined
      ? []
      : ['--cpu-prof', `--cpu-prof-dir=${placement.profiles}`, `--cpu-prof-name=${process}.cpuprofile`];
  const start = (
    process: 'web' | 'worker' | 'sync',
    own: { number?: number; env?: typeof env; readyUrl?: string | undefined } = {},
  ) => {
    const { nodeArgs, file } = procfile.find(({ name }) => name === process)!;
    return startProcess(
      `${placement.name}-${process}${own.number ?? ''}`,
      path.join(packageRoot, file),
      own.env ?? env,
      {
        folder,
        nodeArguments: [...nodeArgs, ...(own.number === undefined ? profiled(process) : [])],
        ...(own.readyUrl && { readyUrl: own.readyUrl }),
      },
    );
  };
  const worker = await start('worker', { readyUrl: `http://127.0.0.1:${workerPort}/healthz` });
  const more: BenchProcess[] = [];
  for (let number = 2; number <= (placement.workers ?? 1); number++) {
    more.push(await start('worker', { number, env: { ...env, WORKER_PORT: '0' } }));
  }
  const startStreams = async (url: string) => {
    const own = {
      ...env,
      SYNC_PORT: String(await leasePort()),
      INTEGRATION_KEY: randomBytes(32).toString('base64'),
      ALLOWED_NETWORKS: '127.0.0.0/8',
    };
    await createStreams(databaseUrl, url, own.INTEGRATION_KEY);
    return start('sync', { env: own, readyUrl: `http://127.0.0.1:${own.SYNC_PORT}/healthz` });
  };
  const startWeb = (readyUrl?: string) => start('web', { readyUrl });
  let web = await startWeb(`http://127.0.0.1:${port}/readyz`);
  const sync = placement.streamsTo ? await startStreams(placement.streamsTo) : undefined;
  if (sync) more.push(sync);
  const observer = await observeDatabase(databaseUrl, key);
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  const pids: Record<string, number> = { web: web.pid, worker: worker.pid };
  more.forEach((each, index) => {
    pids[each === sync ? 'sync' : `worker${index + 2}`] = each.pid;
  });
  return {
    name: placement.name,
    target: { host: '127.0.0.1', port },
    key,
    observer,
    pids,
    settings,
    databaseUrl,
    ...(redisUrl && { redisUrl }),
    pool,
    async stored() {
      const { rows } = await pool.query<StoredCounts & Record<string, number>>(countStored);
      const { attributes, events, purchases, ...counted } = rows[0]!;
      const disagree =
        events !== counted.countedEvents ||
        purchases !== counted.countedPurchases ||
        attributes + events + purchases + counted.identity! !== counted.countedObjects ||
        counted.deadLetters !== 0;
      if (disagree) throw new Error(`rows and counters disagree: ${JSON.stringify(rows[0])}`);
      return { attributes, events, purchases };
    },
    async restartWeb() {
      await web.kill();
      web = await startWeb();
      pids.web = web.pid;
    },
    async stop() {
      const processes = [web, worker, ...more];
      await Promise.all([observer.stop(), pool.end(), ...processes.map((each) => each.stop())]);
    },
  };
}

/** Creates two streams, a common number: one for a warehouse and one for a tool. */
async function createStreams(databaseUrl: string, url: string, integrationKey: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  try {
    const { rows } = await pool.query<{ id: string }>('select id from workspaces');
    for (const name of ['one', 'two']) {
      const id = newId();
      const credentials = { webhook_secret: newWebhookSecret() };
      const secret = encryptCredentials(credentials, id, keysOf(integrationKey));
      const made = { workspaceId: rows[0]!.id, id, name, kind: 'webhook', settings: { url }, secret };
      if (!(await createDestination(pool, made))) throw new Error('the stream was not made');
    }
  } finally {
    await pool.end();
  }
}

async function prepareWorkspace(databaseUrl: string, key: string): Promise<void> {
  const database = openDatabase(databaseUrl, 1);
  try {
    await bootstrap(database, { BOOTSTRAP_API_KEY: key });
    await database.pool.query(raiseLimit);
  } finally {
    await database.stop();
  }
}
