import type { Pool } from './database.ts';
import { isDistributed } from './distributed.ts';

/**
 * The horizon: ids up to it are decided, since every transaction that may have taken one has ended. Ids are taken
 * before COMMIT and so become visible in another order; a row is read when no smaller id can come any more. A
 * transaction has its xid before it takes an id. So those that were under way when the ids were looked at are older
 * than an xid that is taken then. A long transaction anywhere in the cluster holds the horizon back, if it has written
 * something.
 *
 * What was seen holds for one server, and while its ids go on. A replica that was lagging when it took over gives ids
 * once more, and a store that was restored has xids of its own. Nothing is decided then, until it is looked at anew.
 *
 * Where tables lie apart ids are taken at the coordinator, and xids are those of the nodes: a transaction has written on its
 * node before it takes an id.
 */
interface HorizonWatch {
  /** Ids up to this one are decided. */
  horizon(): string;
  /** @returns whether it has moved */
  look(): Promise<boolean>;
}

/** One server is told from another, also behind the same address, by when it was started. */
const lookStatement = `
  select
    pg_postmaster_start_time()::text as server,
    case when stream_log_id.is_called then stream_log_id.last_value else 0 end::text as last,
    pg_snapshot_xmin(pg_current_snapshot())::text as oldest
  from stream_log_id`;

/** The first of an own transaction each: an id of a transaction is taken only where there are new rows. */
const takeXidStatement = 'select pg_current_xact_id()::text as xid';

/** Of a distributed Postgres. */
const lastStatement = `
  select
    pg_postmaster_start_time()::text as server,
    case when stream_log_id.is_called then stream_log_id.last_value else 0 end::text as last
  from stream_log_id`;

/** Of one Postgres, as of the one node that it is. */
const ONE = '';

interface Looked {
  server: string;
  last: bigint;
  oldest: NodeNumbers;
}

async function lookApart(pool: Pool): Promise<Looked> {
  const { rows } = await pool.query<{ server: string; last: string }>(lastStatement);
  const { servers, oldest } = await findOldest(pool);
  return { server: `${rows[0]!.server}, ${servers}`, last: BigInt(rows[0]!.last), oldest };
}

async function look(pool: Pool): Promise<Looked> {
  if (await isDistributed(pool)) return lookApart(pool);
  const { rows } = await pool.query<{ server: string; last: string; oldest: string }>(lookStatement);
  const { server, last, oldest } = rows[0]!;
  return { server, last: BigInt(last), oldest: new Map([[ONE, BigInt(oldest)]]) };
}

async function takeXids(pool: Pool): Promise<NodeNumbers> {
  if (await isDistributed(pool)) return takeNumbers(pool);
  const { rows } = await pool.query<{ xid: string }>(takeXidStatement);
  return new Map([[ONE, BigInt(rows[0]!.xid)]]);
}

interface Seen {
  server: string;
  /** The last id that was taken, whether it is visible or not. */
  last: bigint;
}

export function watchHorizon(pool: Pool): HorizonWatch {
  let decided = 0n;
  let asked: { last: bigint; xids: NodeNumbers } | undefined;
  let seen: Seen | undefined;
  let underWay: Promise<boolean> | undefined;

  /** Moves the horizon, if those that were asked for have ended. @returns the last id */
  async function settle(): Promise<bigint> {
    const { server, last, oldest } = await look(pool);
    if (seen && (server !== seen.server || last < seen.last)) [decided, asked] = [0n, undefined];
    seen = { server, last };
    if (asked && haveEnded(asked.xids, oldest)) [decided, asked] = [asked.last, undefined];
    return last;
  }

  async function lookOnce(): Promise<boolean> {
    const before = decided;
    const last = await settle();
    if (!asked && last !== decided) {
      asked = { last, xids: await takeXids(pool) };
      await settle();
    }
    return decided !== before;
  }

  return {
    horizon: () => String(decided),
    // Several ask at once: they share one look.
    look() {
      underWay ??= lookOnce().finally(() => {
        underWay = undefined;
      });
      return underWay;
    },
  };
}

/**
 * Transactions of a distributed Postgres, as its nodes number them. A transaction of two phases ends at the coordinator
 * before it is committed on its node. So who waits until nothing that was under way can still commit asks the nodes: what is
 * prepared there is under way.
 */

/** Numbers by node. */
type NodeNumbers = Map<string, bigint>;

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
async function takeNumbers(pool: Pool): Promise<NodeNumbers> {
  const said = await ask(pool, takeCommand);
  return new Map(said.map(([node, number]) => [node, BigInt(number)]));
}

/** `servers` changes when a node is another one, or has begun anew. @throws with 08006 when a node is away */
async function findOldest(pool: Pool): Promise<{ servers: string; oldest: NodeNumbers }> {
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
function haveEnded(taken: NodeNumbers, oldest: NodeNumbers): boolean {
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

/**
 * An id of its own, later than all that were given out. A snapshot's xmax is not: it follows the last transaction
 * that has ended, and one that is under way may lie beyond it.
 */
const newest = 'select pg_current_xact_id()::text as horizon';

const passed = 'select pg_snapshot_xmin(pg_current_snapshot()) >= $1::xid8 as passed';

/** A point that every transaction which has an id now lies before. */
type Horizon = string | NodeNumbers;

export async function readHorizon(pool: Pool): Promise<Horizon> {
  if (await isDistributed(pool)) return takeNumbers(pool);
  const { rows } = await pool.query<{ horizon: string }>({ name: 'read-horizon', text: newest });
  return rows[0]!.horizon;
}

/** Whether every transaction before the horizon has ended. */
export async function isPassed(pool: Pool, horizon: Horizon): Promise<boolean> {
  if (typeof horizon !== 'string') return haveEnded(horizon, (await findOldest(pool)).oldest);
  const { rows } = await pool.query<{ passed: boolean }>({
    name: 'is-horizon-passed',
    text: passed,
    values: [horizon],
  });
  return rows[0]!.passed;
}
