import { get } from 'node:http';
import path from 'node:path';
import pg from 'pg';
import { describeFleet } from './fleet-state.ts';
import { isLong } from './length.ts';
import { leasePort } from './ports.ts';
import { startProcess, type TestProcess } from './processes.ts';
import { startRedis, type TestRedis } from './redis.ts';
import { waitUntil } from './wait-until.ts';
import { createWorkspace, type TestWorkspace } from './workspace.ts';

export const backends = ['redis', 'postgres'] as const;
export type Backend = (typeof backends)[number];

/**
 * Backends for tests whose subject does not depend on the queue: one of them in the short form, both in the
 * long one.
 */
export const eitherBackend: readonly Backend[] = isLong ? backends : ['redis'];

/** A Penstock process under test; `name` is also the application name of its Postgres sessions. */
export interface Member extends TestProcess {
  name: string;
  port: number;
}

export interface Fleet {
  backend: Backend;
  workspace: TestWorkspace;
  /** Absent if the queue is in Postgres. */
  redis: TestRedis | undefined;
  /** Connections of the test, with the application name `OBSERVER`. */
  pool: pg.Pool;
  env: Record<string, string>;
  /** The living ones. */
  edges: Member[];
  workers: Member[];
  syncs: Member[];
  boards: Member[];
  /** Starts a web process. `env` is added to the fleet's; `dist` is the build of another release. */
  startEdge(port?: number, env?: Record<string, string>, dist?: string): Promise<Member>;
  startWorker(env?: Record<string, string>, dist?: string): Promise<Member>;
  startSync(env?: Record<string, string>): Promise<Member>;
  startBoard(): Promise<Member>;
  /** Sends a signal, by default SIGKILL, and waits for the end. */
  end(member: Member, signal?: NodeJS.Signals): Promise<{ code: number | null; milliseconds: number }>;
  /** Names of the processes that have ended by themselves. */
  fallen(): Promise<string[]>;
  stop(): Promise<void>;
}

export const OBSERVER = 'observer';

export interface FleetOptions {
  edges?: number;
  workers?: number;
  syncs?: number;
  env?: Record<string, string>;
  /** If absent, a Redis is started when the queue is in Redis. */
  redis?: TestRedis | undefined;
}

/** Starts two web processes and two workers on a migrated database, with a short redelivery after a death. */
export async function startFleetOn(
  url: string,
  backend: Backend,
  { edges = 2, workers = 2, syncs = 0, env = {}, ...given }: FleetOptions = {},
): Promise<Fleet> {
  const redis = given.redis ?? (backend === 'redis' ? await startRedis() : undefined);
  const pool = new pg.Pool({ connectionString: url, max: 4, application_name: OBSERVER });
  pool.on('error', () => {});
  const workspace = await createWorkspace(pool);
  let started = 0;

  const fleet: Fleet = {
    backend,
    workspace,
    redis,
    pool,
    env: {
      DATABASE_URL: url,
      ...(redis && { REDIS_URL: redis.url }),
      LANES: backend === 'redis' ? '4' : '1',
      LOCK_DURATION_MS: '1500',
      STALLED_INTERVAL_MS: '500',
      // A machine that is busy with other tests must not cause a 503.
      QUEUE_TIMEOUT_MS: '10000',
      // Networks of the sources and receivers of tests.
      ALLOWED_NETWORKS: '127.0.0.0/8,::1/128',
      LOG_LEVEL: 'warn',
      ...env,
    },
    edges: [],
    workers: [],
    syncs: [],
    boards: [],
    startEdge: async (port, extra, dist = 'dist') =>
      start(`${dist}/src/web.js`, fleet.edges, { PORT: String(port ?? (await leasePort())), ...extra }),
    startWorker: async (extra, dist = 'dist') =>
      start(`${dist}/workers/worker.js`, fleet.workers, {
        WORKER_PORT: String(await leasePort()),
        ...extra,
      }),
    startSync: async (extra) =>
      start('dist/workers/sync.js', fleet.syncs, { SYNC_PORT: String(await leasePort()), ...extra }),
    startBoard: async () =>
      start('dist/src/board.js', fleet.boards, { BOARD_PORT: String(await leasePort()) }),
    async end(member, signal = 'SIGKILL') {
      const from = Date.now();
      // A process that is asked to end still answers requests.
      if (signal === 'SIGKILL') forget(member);
      member.kill(signal);
      const { code } = await member.exit;
      forget(member);
      return { code, milliseconds: Date.now() - from };
    },
    async fallen() {
      const living = Symbol('living');
      const members = all();
      const states = await Promise.all(
        members.map(({ exit }) => Promise.race([exit, Promise.resolve(living)])),
      );
      return members.filter((_, index) => states[index] !== living).map(({ name }) => name);
    },
    async stop() {
      await Promise.all(all().map((member) => fleet.end(member)));
      await pool.end();
    },
  };

  const lists = [fleet.edges, fleet.workers, fleet.syncs, fleet.boards];
  const all = () => lists.flat();

  function forget(member: Member): void {
    for (const list of lists) {
      if (list.includes(member)) list.splice(list.indexOf(member), 1);
    }
  }

  async function start(file: string, list: Member[], own: Record<string, string>) {
    const port = Number(own.PORT ?? own.WORKER_PORT ?? own.SYNC_PORT ?? own.BOARD_PORT);
    const name = `${path.basename(file, '.js')}-${++started}`;
    const process = startProcess(file, { ...fleet.env, PGAPPNAME: name, ...own });
    const member: Member = Object.assign(process, { name, port });
    const ended = process.exit.then(({ code, signal }) => {
      throw new Error(`${name} ended with ${code ?? signal}: ${JSON.stringify(process.log.slice(-12))}`);
    });
    const ready = async () => (await statusOf(port, '/readyz')) === 200;
    // The end of the process is noticed at once; a busy machine gets enough time.
    await Promise.race([waitUntil(ready, { what: `${name} to be ready`, deadline: 100_000 }), ended]);
    ended.catch(() => {});
    list.push(member);
    return member;
  }

  await Promise.all([
    ...Array.from({ length: edges }, () => fleet.startEdge()),
    ...Array.from({ length: workers }, () => fleet.startWorker()),
    ...Array.from({ length: syncs }, () => fleet.startSync()),
  ]);
  return fleet;
}

export function statusOf(port: number, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get({ port, path, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on('error', reject);
  });
}

/** Returns the worker that has a transaction open at this moment. */
export function busyWorker({ pool, workers }: Fleet): Promise<Member> {
  return waitUntil(
    async () => {
      const { rows } = await pool.query<{ name: string }>(
        `select application_name as name from pg_stat_activity
         where datname = current_database() and xact_start is not null and application_name like 'worker-%'
           and query ~ 'ledger|jsonb_to_recordset'
         order by xact_start limit 1`,
      );
      return workers.find(({ name }) => name === rows[0]?.name);
    },
    { what: 'a worker in the middle of a batch', fleeting: true },
  );
}

/** Returns the workers' own count of applied objects and dead letters, which is cheap to read. */
export async function countProcessed({ pool }: Fleet): Promise<number> {
  const { rows } = await pool.query(
    'select coalesce(sum(objects + dead_letters), 0)::integer as objects from lane_totals',
  );
  return rows[0].objects;
}

/** Resolves when every lane has applied another envelope. @returns the duration in milliseconds */
export async function everyLaneMoves(fleet: Fleet, deadline: number): Promise<number> {
  const { pool, env } = fleet;
  const read = async () => {
    const { rows } = await pool.query<{ lane: number; envelopes: string }>(
      'select lane, envelopes from lane_totals',
    );
    return new Map(rows.map(({ lane, envelopes }) => [lane, Number(envelopes)]));
  };
  const started = Date.now();
  const before = await read();
  await waitUntil(
    async () => {
      const now = await read();
      return (
        now.size === Number(env.LANES) && [...now].every(([lane, count]) => count > (before.get(lane) ?? 0))
      );
    },
    { what: 'every lane to move', deadline, explain: () => describeFleet(fleet) },
  );
  return Date.now() - started;
}
