import { readFileSync } from 'node:fs';
import pg from 'pg';
import { migrate } from '../../src/processes/migrate.ts';
import { citusUrl } from '../../test/setup/citus.ts';
import { endLeftBehind } from '../../test/setup/left-behind.ts';
import { createDistributedDatabase } from '../../test/store/distributed-database.ts';
import { startEnvironment } from './environment.ts';

interface Store {
  /** Address of a database with Penstock's tables. */
  url: string;
  /** Process ids, as returned by `findServers`. */
  servers: Record<string, number>;
  stop(): Promise<void>;
}

/**
 * Creates a database that is removed after the measurement.
 *
 * @param citus whether it is distributed on the Citus of CITUS_URL; otherwise it is on a separate Postgres
 * @param programs folder of the Postgres programs; by default the programs of the npm package
 */
export async function openStore({
  citus,
  programs,
}: {
  citus: boolean;
  programs?: string | undefined;
}): Promise<Store> {
  const { url, stop } = await (citus ? onCitus() : onOwnPostgres(programs));
  return { url, servers: await findServers(url), stop };
}

async function onOwnPostgres(programs?: string) {
  const { database, stop } = await startEnvironment(programs);
  const url = await database('batches');
  await migrate(url);
  return { url, stop };
}

async function onCitus() {
  if (!citusUrl) throw new Error('CITUS_URL names no Citus');
  return { url: await createDistributedDatabase(), stop: endLeftBehind };
}

/**
 * Returns the process ids of the Postgres servers of a database, for `readCpu`: one, or for a Citus the
 * coordinator and each node.
 *
 * @throws {Error} if a server is on another machine, whose processor time cannot be read
 */
export async function findServers(url: string): Promise<Record<string, number>> {
  const coordinator = await serverOf(url);
  const nodes = await Promise.all(coordinator.nodes.map((node) => serverOf(node)));
  return Object.fromEntries([coordinator, ...nodes].map(({ pid }, index) => [`postgres${index}`, pid]));
}

const hasNodes = "select exists (select from pg_class where relname = 'pg_dist_node') as found";
const listNodes = `
  select nodename, nodeport from pg_dist_node where noderole = 'primary' and groupid <> 0 order by nodeid`;

/** @returns the process id of the server, and the addresses of the same database on its nodes */
async function serverOf(url: string): Promise<{ pid: number; nodes: string[] }> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    const pid = parentOf(rows[0]!.pid);
    if (!pid) throw new Error(`${new URL(url).host} is not on this machine: its processor time is unknown`);
    const { rows: answers } = await client.query<{ found: boolean }>(hasNodes);
    const nodes = answers[0]!.found ? (await client.query(listNodes)).rows : [];
    return { pid, nodes: nodes.map(({ nodename, nodeport }) => at(url, `${nodename}:${nodeport}`)) };
  } finally {
    await client.end();
  }
}

function at(url: string, host: string): string {
  const node = new URL(url);
  node.host = host;
  return node.href;
}

/**
 * Returns the process id of the server that started a session; undefined if the session is not a process of
 * this machine.
 */
function parentOf(pid: number): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    const field = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)?.[1] ?? '';
    return field('Name') === 'postgres' ? Number(field('PPid')) : undefined;
  } catch {
    return undefined;
  }
}
