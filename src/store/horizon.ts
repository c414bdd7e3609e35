import type { Pool } from './database.ts';
import { isDistributed } from './distributed.ts';

/**
 * The horizon of a sequence: all ids up to it are final, because every transaction that may have taken one of
 * them has ended. Ids are taken before COMMIT and become visible in a different order, so a row is read only
 * when no smaller id can appear later. A transaction has its xid before it takes an id. Transactions that
 * were open when the last id was read are therefore older than an xid that is taken afterwards. Any long
 * transaction in the cluster that has written delays the horizon.
 *
 * A reading is valid only for one server, and only while its ids increase. A lagging replica that was
 * promoted assigns some ids again, and a restored store has its own xids. In both cases the horizon restarts
 * at zero.
 *
 * On a distributed Postgres, the coordinator assigns ids, and xids are those of the nodes: a transaction
 * writes on its node before it takes an id.
 */
export interface HorizonWatch {
  /** Returns the horizon: ids up to this one are final. */
  horizon(): string;
  /** Reads the sequence and advances the horizon if possible. @returns whether it has moved */
  check(): Promise<boolean>;
}

/** The start time identifies the server, even if another server has the same address. */
const horizonStatement = `
  select
    pg_postmaster_start_time()::text as server,
    case when stream_log_id.is_called then stream_log_id.last_value else 0 end::text as last,
    pg_snapshot_xmin(pg_current_snapshot())::text as oldest
  from stream_log_id`;

/** Each call is its own transaction. It is only made when there are new ids, because it consumes an xid. */
const takeXidStatement = 'select pg_current_xact_id()::text as xid';

/** Variant for a distributed Postgres. */
const lastStatement = `
  select
    pg_postmaster_start_time()::text as server,
    case when stream_log_id.is_called then stream_log_id.last_value else 0 end::text as last
  from stream_log_id`;

/** Name of the only node of a single Postgres. */
const SINGLE_NODE = '';

interface Reading {
  server: string;
  last: bigint;
  oldest: NodeNumbers;
}

async function readDistributed(pool: Pool): Promise<Reading> {
  const { rows } = await pool.query<{ server: string; last: string }>(lastStatement);
  const { servers, oldest } = await findOldest(pool);
  return { server: `${rows[0]!.server}, ${servers}`, last: BigInt(rows[0]!.last), oldest };
}

async function readIds(pool: Pool): Promise<Reading> {
  if (await isDistributed(pool)) return readDistributed(pool);
  const { rows } = await pool.query<{ server: string; last: string; oldest: string }>(horizonStatement);
  const { server, last, oldest } = rows[0]!;
  return { server, last: BigInt(last), oldest: new Map([[SINGLE_NODE, BigInt(oldest)]]) };
}

async function takeXids(pool: Pool): Promise<NodeNumbers> {
  if (await isDistributed(pool)) return takeNumbers(pool);
  const { rows } = await pool.query<{ xid: string }>(takeXidStatement);
  return new Map([[SINGLE_NODE, BigInt(rows[0]!.xid)]]);
}

interface LastReading {
  server: string;
  /** Last id that was taken, visible or not. */
  last: bigint;
}

export function watchHorizon(pool: Pool): HorizonWatch {
  let decided = 0n;
  let pending: { last: bigint; xids: NodeNumbers } | undefined;
  let lastReading: LastReading | undefined;
  let running: Promise<boolean> | undefined;

  /**
   * Advances the horizon if all transactions older than the requested xids have ended. @returns the last id
   */
  async function update(): Promise<bigint> {
    const { server, last, oldest } = await readIds(pool);
    if (lastReading && (server !== lastReading.server || last < lastReading.last))
      [decided, pending] = [0n, undefined];
    lastReading = { server, last };
    if (pending && haveEnded(pending.xids, oldest)) [decided, pending] = [pending.last, undefined];
    return last;
  }

  async function advance(): Promise<boolean> {
    const before = decided;
    const last = await update();
    if (!pending && last !== decided) {
      pending = { last, xids: await takeXids(pool) };
      await update();
    }
    return decided !== before;
  }

  return {
    horizon: () => String(decided),
    // Concurrent callers share one check.
    check() {
      running ??= advance().finally(() => {
        running = undefined;
      });
      return running;
    },
  };
}

/**
 * Transactions of a distributed Postgres have one number per node. A two-phase transaction ends on the
 * coordinator before it is committed on its node. To know that no open transaction can still commit, the
 * nodes have to be queried; prepared transactions count as open.
 */

/** Transaction numbers by node. */
type NodeNumbers = Map<string, bigint>;

interface NodeAnswer {
  id: string;
  address: string;
  success: boolean;
  result: string;
}

/** A node does not respond, so its open transactions are unknown. */
class NodeUnavailable extends Error {
  /** SQLSTATE connection_failure. */
  readonly code = '08006';
}

/** Queries all nodes including the coordinator, which may have shards of its own. */
const queryNodesStatement = `
  select
    nodeid::text as id, nodename || ':' || nodeport as address, success, result
  from run_command_on_all_nodes($1)
  join pg_dist_node using (nodeid)`;

/** Assigns a new transaction number on each node, which is later than all assigned before. */
const takeCommand = 'select pg_current_xact_id()::text';

/** Start time of the node and its smallest open transaction number. */
const oldestCommand =
  "select pg_postmaster_start_time()::text || '|' || pg_snapshot_xmin(pg_current_snapshot())::text";

/**
 * Takes numbers that are later than those of all open transactions. @throws with code 08006 if a node does
 * not respond
 */
async function takeNumbers(pool: Pool): Promise<NodeNumbers> {
  const answers = await queryNodes(pool, takeCommand);
  return new Map(answers.map(([node, number]) => [node, BigInt(number)]));
}

/**
 * Returns the oldest open number of each node. `servers` changes if a node is replaced or restarted. @throws
 * with code 08006 if a node does not respond
 */
async function findOldest(pool: Pool): Promise<{ servers: string; oldest: NodeNumbers }> {
  const answers = (await queryNodes(pool, oldestCommand)).map(([node, result]) => {
    const [since, number] = result.split('|') as [string, string];
    return { node, since, number: BigInt(number) };
  });
  return {
    servers: answers.map(({ node, since }) => `${node} ${since}`).join(', '),
    oldest: new Map(answers.map(({ node, number }) => [node, number])),
  };
}

/**
 * Returns whether all transactions that were open when the numbers were taken have ended. A removed node has
 * no open transactions.
 */
function haveEnded(taken: NodeNumbers, oldest: NodeNumbers): boolean {
  return [...taken].every(([node, number]) => {
    const now = oldest.get(node);
    return now === undefined || now > number;
  });
}

async function queryNodes(pool: Pool, command: string): Promise<[node: string, result: string][]> {
  const { rows } = await pool.query<NodeAnswer>(queryNodesStatement, [command]);
  return rows.map(({ id, address, success, result }) => {
    if (!success) throw new NodeUnavailable(`the node ${address} does not answer: ${result}`);
    return [id, result];
  });
}

/**
 * Takes a new xid, which is later than all assigned ones. The xmax of a snapshot would not do: it follows the
 * last completed transaction, and an open one may be later.
 */
const takeHorizonStatement = 'select pg_current_xact_id()::text as horizon';

const isPassedStatement = 'select pg_snapshot_xmin(pg_current_snapshot()) >= $1::xid8 as passed';

/** A point in time after the start of every transaction that has an id now. */
type Horizon = string | NodeNumbers;

export async function readHorizon(pool: Pool): Promise<Horizon> {
  if (await isDistributed(pool)) return takeNumbers(pool);
  const { rows } = await pool.query<{ horizon: string }>({
    name: 'read-horizon',
    text: takeHorizonStatement,
  });
  return rows[0]!.horizon;
}

/** Returns whether every transaction before the horizon has ended. */
export async function isPassed(pool: Pool, horizon: Horizon): Promise<boolean> {
  if (typeof horizon !== 'string') return haveEnded(horizon, (await findOldest(pool)).oldest);
  const { rows } = await pool.query<{ passed: boolean }>({
    name: 'is-horizon-passed',
    text: isPassedStatement,
    values: [horizon],
  });
  return rows[0]!.passed;
}
