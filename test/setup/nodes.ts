import pg from 'pg';
import { inject } from 'vitest';

/**
 * Reports whether to skip a test about one Postgres itself, its planner or its processes. docs/evidence/scale.md lists
 * these tests.
 *
 * @param _reason why its guarantee is another one where tables lie on nodes
 */
export function isAboutOnePostgres(_reason: string): boolean {
  return inject('citusTemplate') !== '';
}

const hasNodes = "select to_regclass('pg_dist_node') is not null as found";
const nodes = 'select nodename, nodeport from pg_dist_node where groupid <> 0 order by nodeid';

/**
 * Returns the databases that execute statements on rows of the store: one, or the coordinator's and each
 * node's.
 */
async function databasesOf(url: string): Promise<string[]> {
  return withClient(url, async (client) => {
    const { rows: records } = await client.query<{ found: boolean }>(hasNodes);
    if (!records[0]!.found) return [url];
    const { rows } = await client.query<{ nodename: string; nodeport: number }>(nodes);
    return [url, ...rows.map(({ nodename, nodeport }) => at(url, nodename, nodeport))];
  });
}

/** Runs the statement in each of these databases. @returns all rows */
export async function askEverywhere<Row extends pg.QueryResultRow>(
  url: string,
  statement: string,
): Promise<Row[]> {
  const answers: Row[][] = [];
  for (const database of await databasesOf(url))
    answers.push(await withClient(database, async (client) => (await client.query<Row>(statement)).rows));
  return answers.flat();
}

export interface Gate {
  /** Makes triggers wait from now on. */
  shut(): Promise<void>;
  open(): Promise<void>;
  isWaitedFor(): Promise<boolean>;
  stop(): Promise<void>;
}

/** SQL of a trigger that waits while the gate is shut. */
export const passGate = (key: number) => `perform pg_advisory_xact_lock_shared(${key});`;

/** Creates a gate for triggers of tables of the store, on every node that has rows. */
export async function makeGate(url: string, key: number): Promise<Gate> {
  const holders: pg.Client[] = [];
  for (const database of await databasesOf(url)) {
    const holder = new pg.Client({ connectionString: database });
    await holder.connect();
    holders.push(holder);
  }
  const all = <Row extends pg.QueryResultRow>(statement: string) =>
    Promise.all(holders.map(async (holder) => (await holder.query<Row>(statement)).rows));
  return {
    shut: async () => void (await all(`select pg_advisory_lock(${key})`)),
    open: async () => void (await all(`select pg_advisory_unlock(${key})`)),
    async isWaitedFor() {
      const waits = `
        select from pg_locks where locktype = 'advisory' and objid = ${key} and not granted
          and database = (select oid from pg_database where datname = current_database())`;
      return (await all(waits)).flat().length > 0;
    },
    stop: async () => void (await Promise.all(holders.map((holder) => holder.end()))),
  };
}

function at(url: string, host: string, port: number): string {
  const node = new URL(url);
  [node.hostname, node.port] = [host, String(port)];
  return node.href;
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return work(client).finally(() => client.end());
}
