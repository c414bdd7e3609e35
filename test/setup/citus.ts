import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { leaveBehind } from './left-behind.ts';

/** A database of a Citus at its coordinator, as somebody who may make others: `postgres://…`. Empty: there is none. */
export const citusUrl = process.env.CITUS_URL;

interface Node {
  nodename: string;
  nodeport: number;
}

/**
 * An empty database of its own on every node of the Citus that CITUS_URL names. Dropped after the file at the latest.
 * `url`: at the coordinator.
 */
export async function createCitusDatabase(): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomBytes(6).toString('hex')}`;
  const at = (database: string, node?: Node) => {
    const url = new URL(citusUrl!);
    if (node) [url.hostname, url.port] = [node.nodename, String(node.nodeport)];
    if (database) url.pathname = database;
    return url.href;
  };
  const { hostname, port } = new URL(citusUrl!);
  const nodes = await ask<Node>(
    at(''),
    `select nodename, nodeport from pg_dist_node where noderole = 'primary' and groupid <> 0 order by nodeid`,
  );
  const drop = async () => {
    for (const node of [undefined, ...nodes])
      await ask(at('', node), `drop database if exists ${name} with (force)`);
  };
  leaveBehind(drop);
  for (const node of [undefined, ...nodes]) {
    await ask(at('', node), `create database ${name}`);
    await ask(at(name, node), 'create extension citus');
  }
  await ask(at(name), `select citus_set_coordinator_host('${hostname}', ${Number(port || 5432)})`);
  for (const { nodename, nodeport } of nodes)
    await ask(at(name), `select citus_add_node('${nodename}', ${nodeport})`);
  return { url: at(name), drop };
}

async function ask<Row extends pg.QueryResultRow>(url: string, statement: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Row>(statement)).rows;
  } finally {
    await client.end();
  }
}
