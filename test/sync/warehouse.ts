import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { expect } from 'vitest';
import {
  encryptCredentials,
  type FileFormat,
  keysOf,
  type PostgresDefinition,
} from '../../src/integrations/source.ts';
import { SYNC_QUEUE } from '../../src/jobs/catalog.ts';
import { readConfig } from '../../src/platform/config.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { createSyncQueue } from '../../src/queue/syncs.ts';
import { startRun } from '../../src/store/sync-runs.ts';
import type { Fleet } from '../guarantees/fleet.ts';
import { createBareDatabase, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { createIntegration, type TestIntegration } from '../setup/integrations.ts';

/** INTEGRATION_KEY of the processes of a test. */
export const INTEGRATION_KEY = randomBytes(32).toString('base64');

/** One row for a table or a file. */
export interface WarehouseRow {
  updated_at: string;
  external_id: string;
  payload?: object | string;
}

/** Creates a customer's Postgres: a separate database on the test cluster. */
export async function createWarehouse() {
  const { url } = await createBareDatabase();
  const { hostname, port, pathname, username, password } = new URL(url);
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  const definition = (table: string): PostgresDefinition => ({
    type: 'postgres',
    host: hostname,
    port: Number(port),
    database: pathname.slice(1),
    table,
    tls: 'off',
  });

  return {
    pool,
    definition,
    credentials: { user: username, password },

    /** Creates a table with the columns of every sync except a sync of deletes. */
    async table(name: string, rows: WarehouseRow[]): Promise<void> {
      await pool.query(`create table ${name} (updated_at timestamptz, external_id text, payload jsonb)`);
      await this.insert(name, rows);
    },
    async insert(name: string, rows: WarehouseRow[]): Promise<void> {
      await pool.query(
        `insert into ${name} select * from jsonb_to_recordset($1::jsonb)
           as given (updated_at timestamptz, external_id text, payload jsonb)`,
        [JSON.stringify(rows)],
      );
    },
    stop: () => pool.end(),
  };
}

export type Warehouse = Awaited<ReturnType<typeof createWarehouse>>;

/** Writes a folder with one file of these rows. */
export async function writeRows(format: FileFormat, rows: WarehouseRow[]): Promise<string> {
  const folder = temporaryFolder('penstock-rows-');
  const file = path.join(folder, `rows.${format}`);
  const columns = Object.keys(rows[0]!);
  const json = rows.map((row) => JSON.stringify(row));
  if (format === 'ndjson') writeFileSync(file, `${json.join('\n')}\n`);
  if (format === 'csv') {
    const quote = (value: unknown) =>
      `"${(typeof value === 'object' ? JSON.stringify(value) : String(value)).replaceAll('"', '""')}"`;
    const lines = rows.map((row) => columns.map((name) => quote(row[name as never])).join(','));
    writeFileSync(file, `${[columns.join(','), ...lines].join('\n')}\n`);
  }
  if (format === 'parquet') {
    const source = path.join(temporaryFolder('penstock-json-'), 'rows.json');
    writeFileSync(source, json.join('\n'));
    const instance = await DuckDBInstance.create(':memory:');
    const connection = await instance.connect();
    const payload = columns.includes('payload') ? ', payload::varchar as payload' : '';
    await connection.run(
      `copy (select updated_at::timestamptz as updated_at, external_id::varchar as external_id${payload}
             from read_json('${source}', format = 'newline_delimited',
               columns = {updated_at: 'VARCHAR', external_id: 'VARCHAR'${payload && ", payload: 'JSON'"}}))
       to '${file}' (format parquet)`,
    );
    connection.closeSync();
    instance.closeSync();
  }
  return folder;
}

/** Creates an integration of the fleet's workspace, with credentials if needed. @returns its id */
export async function integrate(
  { pool, workspace }: Pick<Fleet, 'pool' | 'workspace'>,
  change: TestIntegration,
  credentials?: { user: string; password: string },
): Promise<string> {
  const id = await createIntegration(pool, workspace.id, change);
  if (credentials) {
    const encrypted = encryptCredentials(credentials, id, keysOf(INTEGRATION_KEY));
    await pool.query('update integrations set credentials = $2 where id = $1', [id, encrypted]);
  }
  return id;
}

/** Starts runs as the API does: in the table, and then in the queue. */
export async function createAsker({ pool, env }: Pick<Fleet, 'pool' | 'env'>) {
  const config = readConfig(env);
  const connection = connectProducer(config, config.DATABASE_URL);
  await waitUntil(() => connection.ready(), { what: 'the queue' });
  const syncs = createSyncQueue(connection, 10_000);
  const queue = openQueue(connection, SYNC_QUEUE);
  return {
    /** Counts the runs in the queue. */
    async jobs() {
      const { active, waiting } = await queue.getJobCounts('active', 'waiting');
      return { active, waiting };
    },
    /** The run's id. */
    async begin(integrationId: string): Promise<string> {
      const id = uuidv7();
      expect(await startRun(pool, { id, integrationId, askedBy: 'operator' })).toBe('started');
      await syncs.add(id);
      return id;
    },
    async stop(): Promise<void> {
      await queue.close();
      await syncs.stop();
      await connection.stop();
    },
  };
}

export type Asker = Awaited<ReturnType<typeof createAsker>>;

export interface EndedRun {
  id: string;
  status: string;
  rows_read: number;
  rows_synced: number;
  rows_failed: number;
  message: string | null;
  asked_by: string;
}

const ended = `
  select id, status, rows_read::integer, rows_synced::integer, rows_failed::integer, message, asked_by
  from sync_jobs where finished_at is not null and id = $1`;

/** Waits for the end of the run, and returns it. */
export async function whenEnded(
  { pool }: Pick<Fleet, 'pool'>,
  id: string,
  deadline = 30_000,
): Promise<EndedRun> {
  return waitUntil(async () => (await pool.query<EndedRun>(ended, [id])).rows[0], {
    what: 'the end of a run',
    deadline,
  });
}
