import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { leaveBehind } from './left-behind.ts';
import { waitUntil } from './wait-until.ts';

/**
 * Address of a database on the coordinator of a Citus, for a role that may create databases: `postgres://…`.
 * Empty: no Citus.
 */
export const citusUrl = process.env.CITUS_URL;

export interface Node {
  nodename: string;
  nodeport: number;
}

interface CitusDatabase {
  /** At the coordinator. */
  url: string;
  drop(): Promise<void>;
}

interface Making {
  /** Returns the address by which the other nodes reach a node; its own by default. */
  addressOf?(node: Node): Promise<Node>;
  /** Creates the database on the coordinator only, which then has all shards. */
  alone?: boolean;
}

/**
 * Creates an empty database on every node of the Citus that CITUS_URL names. Dropped after the file at the
 * latest.
 */
export async function createCitusDatabase(making: Making = {}): Promise<CitusDatabase> {
  const database = await makeDatabase(newName(), making);
  leaveBehind(database.drop);
  return database;
}

/**
 * Creates a template database on every node, because distributed tables have files on each of them.
 * @param fill creates its tables
 * @returns its name, and a function that drops it
 */
export async function makeCitusTemplate(
  fill: (url: string) => Promise<void>,
): Promise<{ name: string; drop(): Promise<void> }> {
  const name = newName();
  const { url, drop } = await makeDatabase(name);
  await fill(url);
  for (const node of await everyNode()) {
    await runQuery(at('', node), `alter database ${name} with allow_connections false`);
    // Citus has a process in each database, and a database with sessions cannot be copied.
    await runQuery(
      at('', node),
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${name}'`,
    );
  }
  return { name, drop };
}

/** Copies a template. Dropped after the file at the latest. */
export async function copyCitusDatabase(template: string): Promise<CitusDatabase> {
  const name = newName();
  const drop = () => dropDatabase(name);
  leaveBehind(drop);
  for (const node of await everyNode()) {
    await runQuery(at('', node), `create database ${name} template ${template} strategy file_copy`);
    // Settings of a database are not copied.
    await runQuery(
      at('', node),
      `set citus.enable_ddl_propagation = off; alter database ${name} set jit = off`,
    );
  }
  return { url: at(name), drop };
}

const newName = () => `test_${randomBytes(6).toString('hex')}`;

async function makeDatabase(
  name: string,
  { addressOf = async (node) => node, alone = false }: Making = {},
): Promise<CitusDatabase> {
  const { hostname, port } = new URL(citusUrl!);
  const [coordinator, ...nodes] = await everyNode();
  for (const node of [coordinator, ...nodes]) {
    await runQuery(at('', node), `create database ${name}`);
    await runQuery(at(name, node), 'create extension citus');
  }
  await runQuery(at(name), `select citus_set_coordinator_host('${hostname}', ${Number(port || 5432)})`);
  if (alone)
    await runQuery(
      at(name),
      `select citus_set_node_property('${hostname}', ${Number(port || 5432)}, 'shouldhaveshards', true)`,
    );
  for (const node of alone ? [] : nodes) {
    const { nodename, nodeport } = await addressOf(node);
    await runQuery(at(name), `select citus_add_node('${nodename}', ${nodeport})`);
  }
  return { url: at(name), drop: () => dropDatabase(name) };
}

async function dropDatabase(name: string): Promise<void> {
  for (const node of await everyNode())
    await waitUntil(() => isDropped(name, node), { what: `the end of sessions in ${name}` });
}

/** Postgres gives sessions five seconds to end, and sessions of a busy node may take longer. */
async function isDropped(name: string, node?: Node): Promise<boolean> {
  try {
    await runQuery(at('', node), `drop database if exists ${name} with (force)`);
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === IN_USE) return false;
    throw error;
  }
}

const IN_USE = '55006';

/** Returns the address of a database, or of the one of CITUS_URL. @param node default: the coordinator */
function at(database: string, node?: Node): string {
  const url = new URL(citusUrl!);
  if (node) [url.hostname, url.port] = [node.nodename, String(node.nodeport)];
  if (database) url.pathname = database;
  return url.href;
}

/** Returns every node, first the coordinator as undefined. */
async function everyNode(): Promise<[undefined, ...Node[]]> {
  const nodes = await runQuery<Node>(
    at(''),
    `select nodename, nodeport from pg_dist_node where noderole = 'primary' and groupid <> 0 order by nodeid`,
  );
  return [undefined, ...nodes];
}

async function runQuery<Row extends pg.QueryResultRow>(url: string, statement: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(statement)).rows;
  } finally {
    await client.end();
  }
}
