import type { Pool } from './database.ts';

/**
 * Transactions of a distributed Postgres, as its nodes number them. A transaction of two phases ends at the coordinator
 * before it is committed on its node. So who waits until nothing that was under way can still commit asks the nodes: what is
 * prepared there is under way.
 */

/** Numbers by node. */
export type NodeNumbers = Map<string, bigint>;

interface Said {
  id: string;
  address: string;
  success: boolean;
  result: string;
}

/** A node does not answer: nobody knows what is under way there. */
class NodeAway extends Error {
  /** As of a connection that fails. */
  readonly code = '08006';
}

/** The coordinator is a node as well: it may have shards of its own. */
const askStatement = `
  select
    nodeid::text as id, nodename || ':' || nodeport as address, success, result
  from run_command_on_all_nodes($1)
  join pg_dist_node using (nodeid)`;

/** A number of a transaction of its own on each node, later than all that were given out there. */
const takeCommand = 'select pg_current_xact_id()::text';

/** Since when the node runs, and the smallest number of what is under way there. */
const oldestCommand =
  "select pg_postmaster_start_time()::text || '|' || pg_snapshot_xmin(pg_current_snapshot())::text";

/** Numbers later than those of every transaction that has one now. @throws with 08006 when a node is away */
export async function takeNumbers(pool: Pool): Promise<NodeNumbers> {
  const said = await ask(pool, takeCommand);
  return new Map(said.map(([node, number]) => [node, BigInt(number)]));
}

/** `servers` changes when a node is another one, or has begun anew. @throws with 08006 when a node is away */
export async function findOldest(pool: Pool): Promise<{ servers: string; oldest: NodeNumbers }> {
  const said = (await ask(pool, oldestCommand)).map(([node, result]) => {
    const [since, number] = result.split('|') as [string, string];
    return { node, since, number: BigInt(number) };
  });
  return {
    servers: said.map(({ node, since }) => `${node} ${since}`).join(', '),
    oldest: new Map(said.map(({ node, number }) => [node, number])),
  };
}

/** Whether all that was under way when the numbers were taken has ended. A node that is gone has nothing any more. */
export function haveEnded(taken: NodeNumbers, oldest: NodeNumbers): boolean {
  return [...taken].every(([node, number]) => {
    const now = oldest.get(node);
    return now === undefined || now > number;
  });
}

async function ask(pool: Pool, command: string): Promise<[node: string, result: string][]> {
  const { rows } = await pool.query<Said>(askStatement, [command]);
  return rows.map(({ id, address, success, result }) => {
    if (!success) throw new NodeAway(`the node ${address} does not answer: ${result}`);
    return [id, result];
  });
}
