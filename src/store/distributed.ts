import pg from 'pg';
import type { SessionSettings } from './pooling.ts';
import { PostgresClient } from './postgres-client.ts';

/**
 * Detects a distributed Postgres (Citus) at the first connection of a pool, without a setting. On a
 * distributed Postgres, each set-based statement is sent in the form for one workspace. On a single Postgres,
 * connections are unchanged.
 */

/** Whether the database of a pool or a connection is distributed. Absent if not yet known. */
const distribution = new WeakMap<object, boolean>();

const hasCitus = "select exists (select from pg_extension where pg_extension.extname = 'citus') as found";
const hasTables = `
  select exists (
    select from pg_dist_partition where pg_dist_partition.logicalrelid = to_regclass('public.profiles')) as found`;

/** Records whether the tables of a pool, or of an object in its place, are distributed. */
export function noteDistributed(database: object, isDistributed: boolean): void {
  distribution.set(database, isDistributed);
}

/**
 * Queries whether the tables are distributed. For a pool without the `verify` option; it is queried each
 * time.
 */
export async function hasDistributedTables(pool: Pick<pg.Pool, 'query'>): Promise<boolean> {
  return (await queryDistribution(pool)) ?? false;
}

async function queryDistribution(client: Pick<pg.Pool, 'query'>): Promise<boolean | undefined> {
  const { rows: extension } = await client.query<{ found: boolean }>(hasCitus);
  if (!extension[0]!.found) return false;
  const { rows: tables } = await client.query<{ found: boolean }>(hasTables);
  // `penstock release` may be about to distribute the tables.
  return tables[0]!.found || undefined;
}

/**
 * Maximum number of workspaces that one pass of a sweep handles, where each workspace needs its own
 * statement.
 */
export const WORKSPACES = 100;

/**
 * Returns the `verify` option of a pool, which runs for each new connection.
 *
 * @param session settings of the pool's sessions
 */
export function findDistribution(pool: () => pg.Pool, session: SessionSettings) {
  return (client: pg.PoolClient, done: (error?: Error) => void): void => {
    if (distribution.get(pool()) === false) {
      done();
      return;
    }
    prepare(pool(), client, session).then(() => done(), done);
  };
}

/**
 * A generic plan cannot determine the node of the workspace, so plans are made for each value.
 * `propagate_set_commands` also sends timeouts of a transaction to its nodes. Otherwise a wait for a lock on
 * a node would be reported as a statement timeout.
 */
const sessionStatement = "set plan_cache_mode = auto; set citus.propagate_set_commands = 'local'";

async function prepare(pool: pg.Pool, client: pg.PoolClient, session: SessionSettings): Promise<void> {
  const isDistributed = distribution.get(pool) ?? (await queryDistribution(client));
  if (isDistributed === undefined) {
    // It is not known yet whether the tables are distributed: the pool closes this connection after one use
    // and checks the next one again.
    (client as unknown as PostgresClient).isSingleUse = true;
    return;
  }
  noteDistributed(pool, isDistributed);
  if (!isDistributed) return;
  await client.query(sessionStatement);
  noteDistributed(client, true);
  (client as unknown as PostgresClient).distribute(plannerOf(session));
}

/**
 * Planner settings of a session. Nodes plan statements themselves, in sessions that do not have these
 * settings.
 */
const PLANNER = /^(?:enable_\w+|jit)$/;

/** Returns the planner settings as statements that a transaction sends to each node it uses. */
function plannerOf(session: SessionSettings): string[] {
  return Object.entries(session).flatMap(([name, value]) =>
    PLANNER.test(name) ? [`set local ${name}=${value}`] : [],
  );
}

/** Returns the state of the current transaction; undefined on a single Postgres. */
const scopeOf = (tx: pg.PoolClient) => (tx instanceof PostgresClient ? tx.scope : undefined);

/** Sequences whose last values separate earlier rows from later ones. */
const SEQUENCES = ['failure_places', 'subscription_history_id_seq', 'stream_log_id'];

const lastValuesStatement = `select ${SEQUENCES.map((name) => `pg_sequence_last_value('${name}')::text as ${name}`).join(', ')}`;

/**
 * Reads the last values of the sequences, which later statements need as parameters because nodes do not have
 * them. Undefined on a single Postgres, where nothing has to be awaited.
 */
export function readSequenceValues(tx: pg.PoolClient): Promise<void> | undefined {
  const transaction = scopeOf(tx);
  if (!transaction) return undefined;
  return tx.query<Record<string, string | null>>(lastValuesStatement, undefined).then(({ rows }) => {
    for (const name of SEQUENCES) transaction.lastValues.set(name, rows[0]![name] ?? '0');
  });
}

const declareWorkspaceStatement =
  'insert into workspace_places (workspace_id) values ($1) on conflict (workspace_id) do nothing';

/**
 * Declares, at the beginning of a transaction on a distributed Postgres, that it concerns one workspace. Its
 * inserts then go only to that workspace's shard, and it commits in one phase.
 */
export async function declareWorkspace(tx: pg.PoolClient, workspaceId: string): Promise<void> {
  const transaction = scopeOf(tx);
  if (!transaction) return;
  await tx.query({ name: 'take-place', text: declareWorkspaceStatement, values: [workspaceId] });
  transaction.workspaceId = workspaceId;
}

/** Returns whether a checked-out connection belongs to a distributed Postgres, without a query. */
export function liesApart(connection: pg.PoolClient): boolean {
  return distribution.get(connection) === true;
}

/**
 * Returns whether the tables of the database are distributed over several nodes. A transaction must then
 * concern one workspace.
 */
export async function isDistributed(database: pg.Pool | pg.PoolClient): Promise<boolean> {
  const cached = distribution.get(database);
  // Pools without `verify`, and single connections, are not checked automatically.
  if (cached !== undefined || !(database instanceof pg.Pool) || !('verify' in database.options))
    return cached ?? false;
  (await database.connect()).release();
  return distribution.get(database) ?? false;
}

/**
 * Sends a set-based statement: once on a single Postgres, and once for each workspace in turn on a
 * distributed Postgres.
 *
 * @returns all rows, grouped by workspace on a distributed Postgres
 */
export async function forEachWorkspace<Given, Row>(
  database: pg.Pool | pg.PoolClient,
  { given, workspaceOf }: { given: readonly Given[]; workspaceOf: (one: Given) => string },
  send: (some: readonly Given[]) => Promise<Row[]>,
): Promise<Row[]> {
  if (!(await isDistributed(database))) return send(given);
  const parts = new Map<string, Given[]>();
  for (const one of given) {
    const part = parts.get(workspaceOf(one));
    if (part) part.push(one);
    else parts.set(workspaceOf(one), [one]);
  }
  const rows: Row[] = [];
  for (const part of parts.values()) rows.push(...(await send(part)));
  return rows;
}
