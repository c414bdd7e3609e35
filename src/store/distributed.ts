import pg from 'pg';
import { type Said, sayWorkspace } from './one-workspace.ts';
import type { SessionSettings } from './pooling.ts';

/**
 * A distributed Postgres is found out at the first connection of a pool, so that no process has to be told. On one,
 * each statement over a set is sent in the form for one workspace. On one Postgres the connections stay as they are.
 */

/** What is known of the database of a pool or a connection; absent: nothing yet. */
const known = new WeakMap<object, boolean>();

const hasCitus = "select exists (select from pg_extension where pg_extension.extname = 'citus') as found";
const hasTables = `
  select exists (
    select from pg_dist_partition where pg_dist_partition.logicalrelid = to_regclass('public.profiles')) as found`;

/** Notes of a pool, or of what stands for one, whether its tables are distributed. */
export function noteDistributed(database: object, isDistributed: boolean): void {
  known.set(database, isDistributed);
}

/** The same of a pool whose connections nobody looks at: it is asked each time. */
export async function hasDistributedTables(pool: Pick<pg.Pool, 'query'>): Promise<boolean> {
  return (await lookAt(pool)) ?? false;
}

async function lookAt(client: Pick<pg.Pool, 'query'>): Promise<boolean | undefined> {
  const { rows: extension } = await client.query<{ found: boolean }>(hasCitus);
  if (!extension[0]!.found) return false;
  const { rows: tables } = await client.query<{ found: boolean }>(hasTables);
  // `release` may be about to distribute them.
  return tables[0]!.found || undefined;
}

/** Workspaces that a sweep has a turn with at once, where each needs a statement of its own. */
export const WORKSPACES = 100;

/**
 * The option `verify` of a pool, which sees each new connection first.
 *
 * @param session settings of the pool's sessions
 */
export function findDistribution(pool: () => pg.Pool, session: SessionSettings) {
  return (client: pg.PoolClient, done: (error?: Error) => void): void => {
    if (known.get(pool()) === false) {
      done();
      return;
    }
    prepare(pool(), client, session).then(() => done(), done);
  };
}

/**
 * A plan for whatever is given cannot say on which node that is. What a transaction says of time-outs is for its nodes as
 * well: a wait for a lock is there, and would else end as a statement that takes too long.
 */
const sessionStatement = "set plan_cache_mode = auto; set citus.propagate_set_commands = 'local'";

async function prepare(pool: pg.Pool, client: pg.PoolClient, session: SessionSettings): Promise<void> {
  const isDistributed = known.get(pool) ?? (await lookAt(client));
  if (isDistributed === undefined) {
    // Of whom nothing is known yet has this connection once, and then one that is looked at anew.
    (client as unknown as { _poolUseCount: number })._poolUseCount = Number.POSITIVE_INFINITY;
    return;
  }
  noteDistributed(pool, isDistributed);
  if (!isDistributed) return;
  await client.query(sessionStatement);
  noteDistributed(client, true);
  sayOneWorkspace(client, plannerOf(session));
}

/** What a session says to its planner: its nodes have planners of their own, with sessions that nobody has told. */
const PLANNER = /^(?:enable_\w+|jit)$/;

/** Of a pool's sessions, as a transaction says it on each node that it comes to. */
function plannerOf(session: SessionSettings): string[] {
  return Object.entries(session).flatMap(([name, value]) =>
    PLANNER.test(name) ? [`set local ${name}=${value}`] : [],
  );
}

/** What the transaction of a connection has said. */
interface Saying extends Said {
  lastValues: Map<string, string>;
}

const sayings = new WeakMap<object, Saying>();

/** Sequences whose values tell what was written before and what behind. */
const SEQUENCES = ['failure_places', 'subscription_history_id_seq', 'stream_log_id'];

const lastValuesStatement = `select ${SEQUENCES.map((name) => `pg_sequence_last_value('${name}')::text as ${name}`).join(', ')}`;

/**
 * Looks where sequences stand, before statements that say it: on a distributed Postgres no node knows. Undefined on one
 * Postgres, where nothing has to be awaited.
 */
export function readPlaces(tx: pg.PoolClient): Promise<void> | undefined {
  const saying = sayings.get(tx);
  if (!saying) return undefined;
  return tx.query<Record<string, string | null>>(lastValuesStatement, undefined).then(({ rows }) => {
    for (const name of SEQUENCES) saying.lastValues.set(name, rows[0]![name] ?? '0');
  });
}

const takePlaceStatement =
  'insert into workspace_places (workspace_id) values ($1) on conflict (workspace_id) do nothing';

/**
 * Says of a transaction on a distributed Postgres, at its beginning, that it is about one workspace. What it inserts
 * goes to that workspace's shard alone, and it commits in one phase.
 */
export async function takePlace(tx: pg.PoolClient, workspaceId: string): Promise<void> {
  const saying = sayings.get(tx);
  if (!saying) return;
  await tx.query({ name: 'take-place', text: takePlaceStatement, values: [workspaceId] });
  saying.place = workspaceId;
}

/** What ends a transaction, or begins one: the row of its place may be gone. */
const BOUND = /^\s*(?:begin|commit|rollback)\b(?!\s+to\b)/i;
const BEGIN = /^\s*begin\b/i;
const SETS = /^\s*set local\b/i;

// biome-ignore lint/suspicious/noExplicitAny: As `pg` has it: text or an object, values, a function.
type Query = (...given: any[]) => any;

interface Statement {
  name?: string;
  text: string;
  values?: unknown[];
  submit?: unknown;
}

/** A node is told the whole message in which a setting comes, once for each in it: so each has one of its own. */
async function sendEach(query: Query, statements: string[]): Promise<unknown> {
  const [first] = await Promise.all(statements.map((statement) => query(statement)));
  return first;
}

/** From now on the connection's statements are sent in their form for one workspace. */
function sayOneWorkspace(client: pg.PoolClient, planner: string[]): void {
  const query = client.query.bind(client) as Query;
  const saying: Saying = { lastValues: new Map(), place: undefined };
  sayings.set(client, saying);
  client.query = ((statement: string | Statement, ...given: unknown[]) => {
    const [values] = given;
    if (typeof statement === 'string') {
      if (BOUND.test(statement)) saying.place = undefined;
      if (BEGIN.test(statement) || SETS.test(statement)) {
        const settings = BEGIN.test(statement) ? planner : [];
        return sendEach(query, [...statement.split(';'), ...settings]);
      }
      if (!Array.isArray(values)) return query(statement, ...given);
      const said = sayWorkspace(statement, values, saying);
      return query(said.text, said.values, ...given.slice(1));
    }
    if (typeof statement.submit === 'function' || statement.text === undefined)
      return query(statement, ...given);
    const ofIts = statement.values ?? (Array.isArray(values) ? values : []);
    const rest = Array.isArray(values) ? given.slice(1) : given;
    const said = sayWorkspace(statement.text, ofIts, saying);
    // A name stands for one text.
    const name = statement.name && said.isInPlace ? `${statement.name}-in-place` : statement.name;
    return query({ ...statement, ...(name && { name }), text: said.text, values: said.values }, ...rest);
  }) as typeof client.query;
}

/** The same of a connection that has been handed out, without waiting. */
export function liesApart(connection: pg.PoolClient): boolean {
  return known.get(connection) === true;
}

/** Whether the tables of the pool's database lie on several nodes: a transaction is then about one workspace. */
export async function isDistributed(database: pg.Pool | pg.PoolClient): Promise<boolean> {
  const found = known.get(database);
  // Without the option, as a connection, nobody looks.
  if (found !== undefined || !(database instanceof pg.Pool) || !('verify' in database.options))
    return found ?? false;
  (await database.connect()).release();
  return known.get(database) ?? false;
}

/**
 * Sends a statement over a set: on one Postgres once for all of it, else once for each workspace in it, one after the
 * other.
 *
 * @returns the rows of all, those of one workspace together
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
