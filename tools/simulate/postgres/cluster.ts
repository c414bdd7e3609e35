import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import { createLog } from '../../../src/platform/log.ts';
import { migrate } from '../../../src/processes/migrate.ts';
import { everyStatementByIndex } from '../../../src/store/database.ts';
import { ensurePartitions } from '../../../src/store/partitions.ts';
import { EPOCH } from '../world.ts';
import { SET_TIMES } from './times.ts';

/** A server process of Postgres with its connection. Sessions of simulated processes use it one after the other. */
export interface Backend {
  client: pg.Client;
  pid: number;
}

/**
 * Settings of the server. Only the simulation may start work in it. So autovacuum is off, and Postgres does not search for
 * deadlocks after a real second: the gate does so after a simulated one.
 */
const SETTINGS = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  autovacuum: 'off',
  deadlock_timeout: '1h',
  max_connections: '100',
  shared_buffers: '64MB',
  wal_level: 'minimal',
  max_wal_senders: '0',
  checkpoint_timeout: '1d',
};

/**
 * Functions of Postgres that return the time or random values, for the simulation. They hide the functions of
 * `pg_catalog`, because `search_path` names `public` first. Without simulated settings they return the real values.
 */
const SIMULATED_FUNCTIONS = `
  create function public.now() returns timestamptz language sql stable parallel safe as
    $$ select coalesce(nullif(current_setting('simulation.transaction', true), '')::timestamptz, pg_catalog.now()) $$;
  create function public.transaction_timestamp() returns timestamptz language sql stable parallel safe as
    $$ select coalesce(nullif(current_setting('simulation.transaction', true), '')::timestamptz, pg_catalog.now()) $$;
  create function public.statement_timestamp() returns timestamptz language sql stable parallel safe as
    $$ select coalesce(
         nullif(current_setting('simulation.statement', true), '')::timestamptz, pg_catalog.statement_timestamp()) $$;
  create function public.clock_timestamp() returns timestamptz language sql volatile parallel safe as
    $$ select coalesce(
         nullif(current_setting('simulation.statement', true), '')::timestamptz, pg_catalog.clock_timestamp()) $$;
  create sequence public.simulated_uuids;
  create function public.gen_random_uuid() returns uuid language sql volatile as
    $$ select md5('simulated ' || nextval('public.simulated_uuids'))::uuid $$;`;

/**
 * A Postgres server for simulations. Each thread has its own server, because the transactions of a seed would hold back the
 * snapshots of all other seeds.
 */
export class Cluster {
  readonly #url: string;
  readonly #stopServer: () => Promise<void>;
  readonly #idle: Backend[] = [];
  readonly #all: Backend[] = [];
  /** Connection that reads locks and cancels statements. During a simulation, it takes no transaction id. */
  readonly control: pg.Client;
  /** Tables that are empty when a simulation begins. */
  readonly #tables: string[];
  /** Tables that have rows when a simulation begins. The schema `initial` has copies of them. */
  readonly #filled: string[];
  /** Names of prepared statements, by text. Mutations can give one name several texts. */
  readonly #names = new Map<string, string>();

  constructor(given: {
    url: string;
    control: pg.Client;
    tables: string[];
    filled: string[];
    stopServer(): Promise<void>;
  }) {
    this.#url = given.url;
    this.control = given.control;
    this.#tables = given.tables;
    this.#filled = given.filled;
    this.#stopServer = given.stopServer;
  }

  /** Returns an idle server process with its connection, or a new one. */
  async take(): Promise<Backend> {
    const idle = this.#idle.shift();
    if (idle) return idle;
    const client = await connect(this.#url);
    for (const [name, value] of Object.entries(everyStatementByIndex))
      await client.query(`select set_config('${name}', '${value}', false)`);
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    const backend = { client, pid: rows[0]!.pid };
    this.#all.push(backend);
    return backend;
  }

  give(backend: Backend): void {
    this.#idle.push(backend);
  }

  /** Returns whether the server process was created for sessions of a simulation. */
  has(pid: number): boolean {
    return this.#all.some((backend) => backend.pid === pid);
  }

  /** Returns a name for a prepared statement that belongs to only one text. */
  nameOf({ name, text }: { name: string; text: string }): string {
    const existing = this.#names.get(text);
    if (existing) return existing;
    const isTaken = [...this.#names.values()].includes(name);
    const unique = isTaken ? `${name}-${this.#names.size}` : name;
    this.#names.set(text, unique);
    return unique;
  }

  /** Returns all tables to their initial rows and restarts all sequences, so that a simulation does not depend on the one before. */
  async reset(): Promise<void> {
    const used = `select name from unnest($1::text[]) as name where pg_relation_size(name::regclass) > 0`;
    const { rows } = await this.control.query<{ name: string }>({
      name: 'used-tables',
      text: used,
      values: [this.#tables],
    });
    if (rows.length > 0)
      await this.control.query(`truncate ${rows.map(({ name }) => name).join(', ')} cascade`);
    for (const name of this.#filled)
      await this.control.query(`delete from ${name}; insert into ${name} select * from initial.${name}`);
    await this.control.query({
      name: 'restart-sequences',
      text: "select setval(seqrelid::regclass, 1, false) from pg_sequence where seqrelid::regclass::text !~ 'migration'",
    });
    // Sort, because the order in which sessions take server processes is part of the schedule.
    this.#idle.sort((one, other) => one.pid - other.pid);
  }

  /** Sets the time of the control connection, as epoch milliseconds. */
  async setTime(time: number): Promise<void> {
    const text = new Date(time).toISOString();
    await this.control.query(SET_TIMES, [text, text]);
  }

  async stop(): Promise<void> {
    await Promise.allSettled([...this.#all.map(({ client }) => client.end()), this.control.end()]);
    await this.#stopServer();
  }
}

const listTables = `
  select quote_ident(relname) as name
  from pg_class
  where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> '_prisma_migrations'`;

/** Creates a server with the tables of Penstock in a temporary folder. */
export async function startCluster(): Promise<Cluster> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-simulation-'));
  chmodSync(folder, 0o755);
  const remove = () => rmSync(folder, { recursive: true, force: true });
  const log = createLog('test', 'silent');
  const server = await startEmbeddedPostgres(path.join(folder, 'data'), log, { settings: SETTINGS });
  const stopServer = async () => {
    await server.stop();
    remove();
  };
  try {
    const control = await connect(server.url);
    await control.query(SIMULATED_FUNCTIONS);
    const database = new URL(server.url).pathname.slice(1);
    await control.query(`alter database ${database} set search_path = public, pg_catalog`);
    await control.query('set search_path = public, pg_catalog');
    await migrate(server.url);
    await createPartitions(control);
    const { rows } = await control.query<{ name: string }>(listTables);
    const tables: string[] = [];
    const filled: string[] = [];
    await control.query('create schema initial');
    for (const { name } of rows) {
      const { rowCount } = await control.query(`select from ${name} limit 1`);
      (rowCount === 0 ? tables : filled).push(name);
      if (rowCount !== 0) await control.query(`create table initial.${name} as table ${name}`);
    }
    return new Cluster({ url: server.url, control, tables, filled, stopServer });
  } catch (error) {
    await stopServer();
    throw error;
  }
}

/** Creates the partitions of the months in which simulations run. */
async function createPartitions(control: pg.Client): Promise<void> {
  const begin = new Date(EPOCH).toISOString();
  await control.query(SET_TIMES, [begin, begin]);
  await ensurePartitions(control as unknown as pg.Pool);
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, pipeline: true } as pg.ClientConfig);
  client.on('error', () => {});
  await client.connect();
  return client;
}
