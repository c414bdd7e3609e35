import { writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { createBareDatabase, createDatabase, temporaryFolder } from '../setup/fixtures.ts';
import { makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

/** Minimal valid CSV file of a sync: the required header. */
export const GOOD = 'external_id,updated_at,payload\n';

/** Creates a database with the workspaces `shop` and `school`, without integrations. */
export async function createScene() {
  const { url } = await createDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  const [shop, school] = (await makeWorkspaces(url, 'shop', 'school')) as [string, string];
  return {
    pool,
    shop,
    school,
    /** Returns the command with additional environment variables. */
    with: (env: Record<string, string>): PenstockOn => penstockOn(url, env),
    stop: () => pool.end(),
  };
}

export type Scene = Awaited<ReturnType<typeof createScene>>;

/** Creates a Postgres database with two tables that a sync can read, and one with a missing column. */
export async function createWarehouse() {
  const { url } = await createBareDatabase();
  const { hostname, port, pathname, username, password } = new URL(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    create table users (updated_at timestamptz, external_id text, payload jsonb);
    create table events (updated_at timestamptz, external_id text, payload jsonb);
    create table lost (external_id text, payload jsonb)`);
  await client.end();
  return {
    hostname,
    port,
    database: pathname.slice(1),
    user: decodeURIComponent(username),
    password: decodeURIComponent(password) || 'trusted',
  };
}

export type Warehouse = Awaited<ReturnType<typeof createWarehouse>>;

/** Creates a folder with one CSV file and returns its path. */
export function csvFolder(text = GOOD): string {
  const folder = temporaryFolder();
  writeFileSync(path.join(folder, 'rows.csv'), text);
  return folder;
}

export const create = (name: string, ...more: string[]): string[] => [
  ...['integrations', 'create', '--workspace', 'shop', '--name', name],
  ...more,
];

export const fromFolder = (name: string, source = csvFolder(), ...more: string[]): string[] =>
  create(name, '--kind', 'attributes', '--source', 'folder', '--path', source, '--format', 'csv', ...more);

export const fromPostgres = (
  { hostname, port, database, user }: Warehouse,
  name: string,
  table: string,
  ...more: string[]
) =>
  create(
    name,
    ...['--kind', 'attributes', '--source', 'postgres', '--host', hostname, '--port', port],
    ...['--database', database, '--table', table, '--tls', 'off', '--user', user, ...more],
  );

/** Changes the workspace of a command line to `school`. */
export const inSchool = (args: string[]) => args.map((word) => (word === 'shop' ? 'school' : word));
