import type { Connection, Pool } from './database.ts';
import { copied, distributed, keysWithWorkspace } from './distributed-tables.ts';
import { inTransaction } from './transactions.ts';

/** The tables cannot be distributed. The message states the reason for the operator. */
export class NotDistributable extends Error {}

const hasCitus = "select exists (select from pg_extension where pg_extension.extname = 'citus') as found";

/** Counts nodes that may have shards. */
const countNodes = 'select count(*)::integer as nodes from pg_dist_node where shouldhaveshards and isactive';

/**
 * Selects nodes whose max_prepared_transactions is below the coordinator's max_connections. Each connection
 * may be in a two-phase transaction, which fails at commit if the node has no free slot.
 */
const nodesWithoutRoom = `
  select nodename || ':' || nodeport as node, success, result, current_setting('max_connections') as wanted
  from run_command_on_workers('show max_prepared_transactions')
  where not success or result::integer < current_setting('max_connections')::integer
  order by nodename, nodeport`;

interface WithoutRoom {
  node: string;
  success: boolean;
  /** Value of the setting, or the error if the node does not respond. */
  result: string;
  wanted: string;
}

/**
 * Turns off JIT for all sessions on the nodes. Compiling a plan takes about a second, many times what it
 * saves, and the sessions on a node do not use our session settings. Citus propagates the statement to the
 * nodes.
 */
const withoutCompiling = "select format('alter database %I set jit = off', current_database()) as statement";

const compilingNodes = `
  select nodename || ':' || nodeport as node, result
  from run_command_on_workers('show jit')
  where not success or result <> 'off'`;

/** Tables that Citus already distributes or copies. Excludes tables that it keeps only on the coordinator. */
const citusTables = `
  select pg_dist_partition.logicalrelid::text as name
  from pg_dist_partition
  where pg_dist_partition.partmethod = 'h' or pg_dist_partition.repmodel = 't'`;

/** Tables of the migrations that were applied. */
const migratedTables = `
  select pg_class.relname::text as name
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind in ('r', 'p')`;

/** The remaining objects of a partly applied envelope are recorded for a single Postgres only. */
const hasCut = 'select exists (select from cut_envelopes) as found';

/** Our functions that statements call on the nodes. */
const functions = `
  select pg_proc.oid::regprocedure::text as name
  from pg_proc
  where pg_proc.pronamespace = 'public'::regnamespace
    and pg_proc.prorettype <> 'trigger'::regtype
    and pg_proc.proname in ('uuid_v7_floor', 'names_of_failure')`;

/**
 * Checks the prerequisites without changing anything. @throws {NotDistributable} with the missing
 * prerequisite
 */
export async function requireCitus(pool: Pool): Promise<void> {
  const extension = await pool.query<{ found: boolean }>(hasCitus);
  if (!extension.rows[0]!.found)
    throw new NotDistributable(
      'DISTRIBUTE=citus needs the extension citus in the database of DATABASE_URL, and the database lacks it: `create extension citus` on every node, or leave DISTRIBUTE empty',
    );
  const { rows } = await pool.query<{ nodes: number }>(countNodes);
  if (rows[0]!.nodes === 0)
    throw new NotDistributable(
      'DISTRIBUTE=citus needs nodes that take shards, but this coordinator has no such node: `select citus_add_node(…)`',
    );
  await requireRoom(pool);
}

async function requireRoom(pool: Pool): Promise<void> {
  const { rows } = await pool.query<WithoutRoom>(nodesWithoutRoom);
  const [away] = rows.filter(({ success }) => !success);
  if (away)
    throw new NotDistributable(
      `DISTRIBUTE=citus needs every node, and ${away.node} does not answer (${away.result}): start it, or \`select citus_remove_node(…)\``,
    );
  if (rows.length > 0) {
    const actual = rows.map(({ node, result }) => `${node} has ${result}`).join(', ');
    throw new NotDistributable(
      `DISTRIBUTE=citus needs max_prepared_transactions of ${rows[0]!.wanted} on every node, as many as the coordinator has max_connections, and ${actual}: set it there and restart the node`,
    );
  }
}

/**
 * Distributes the tables over a Citus cluster. Tables that grow with a workspace are distributed by it; small
 * tables are copied to all nodes. Each table has its own transaction. `profiles` is the last one, and its
 * distribution marks completion. Safe to repeat: it resumes after an interruption, and distributes tables
 * that later migrations create.
 *
 * @param pool pool of the coordinator with one connection
 * @param onTable called with each table after it was distributed or copied
 * @returns names of the tables that this call distributed or copied
 * @throws {NotDistributable} with the missing prerequisite
 */
export async function distribute(pool: Pool, onTable: (table: string) => void = () => {}): Promise<string[]> {
  await requireCitus(pool);
  await setNodes(pool);
  const existing = await namesIn(pool, citusTables);
  const isFirst = !existing.has('profiles');
  if (isFirst) await prepare(pool);
  const done: string[] = [];
  await pool.query(createPlacesStatement);
  const migrated = await namesIn(pool, migratedTables);
  const isMissing = (table: string) => migrated.has(table) && !existing.has(table);
  for (const table of copied.filter(isMissing)) {
    await inTransaction(pool, (tx) => copy(tx, table));
    done.push(table);
    onTable(table);
  }
  for (const [table, column] of [
    ['workspace_places', 'workspace_id'],
    ...Object.entries(distributed),
  ] as const) {
    if (!isMissing(table)) continue;
    await inTransaction(pool, (tx) => spread(tx, table, column));
    done.push(table);
    onTable(table);
  }
  return done;
}

async function namesIn(pool: Pool, statement: string): Promise<Set<string>> {
  const { rows } = await pool.query<{ name: string }>(statement);
  return new Set(rows.map(({ name }) => name));
}

/**
 * Table that exists only on a distributed Postgres. It has a row per workspace in the workspace's shard,
 * which inserts join.
 */
const createPlacesStatement = 'create table if not exists workspace_places (workspace_id uuid primary key)';

async function setNodes(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ statement: string }>(withoutCompiling);
  await pool.query(rows[0]!.statement);
  const { rows: others } = await pool.query<Pick<WithoutRoom, 'node' | 'result'>>(compilingNodes);
  for (const { node, result } of others)
    throw new NotDistributable(
      `the nodes need jit = off for the database of DATABASE_URL, and ${node} has ${result}: \`alter database … set jit = off\` there`,
    );
}

async function prepare(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ found: boolean }>(hasCut);
  const isLeft = rows[0]!.found;
  if (isLeft)
    throw new NotDistributable(
      'an envelope is only partly applied: let the workers run until `penstock status` shows that nothing waits, stop them, and try again',
    );
  const { rows: ours } = await pool.query<{ name: string }>(functions);
  for (const { name } of ours) await pool.query('select create_distributed_function($1)', [name]);
}

async function copy(tx: Connection, table: string): Promise<void> {
  await tx.query("set local citus.multi_shard_modify_mode = 'sequential'");
  await tx.query('select create_reference_table($1)', [table]);
}

/** The table with which all others are colocated. */
const ANCHOR = 'workspace_places';

async function spread(tx: Connection, table: string, column: string): Promise<void> {
  await tx.query("set local citus.multi_shard_modify_mode = 'sequential'");
  await dropFailureTriggers(tx, table);
  const key = keysWithWorkspace[table];
  if (key) {
    await tx.query(`alter table ${table} drop constraint ${table}_pkey`);
    await tx.query(`alter table ${table} add primary key (${key.columns})`);
    for (const step of key.besides) await tx.query(step);
  }
  await tx.query('select create_distributed_table($1, $2, colocate_with => $3)', [
    ...[table, column],
    table === ANCHOR ? 'none' : ANCHOR,
  ]);
  await tx.query('select truncate_local_data_after_distributing_table($1)', [table]);
  await makeFailureTriggers(tx, table);
}

/**
 * Replacement of triggers on a distributed Postgres. There each table consists of shards, and a trigger
 * belongs to one shard. It writes to the colocated shard of the other table, which it addresses by name.
 */

/**
 * Tables whose triggers maintain `named_failures`, the index of identifiers that dead letters and failed rows
 * name.
 */
const FAILURES = ['dead_letters', 'sync_row_errors'];

/** Triggers of each table on a single Postgres. */
const plain: Record<string, string[]> = {
  ledger: ['keep_cut_envelopes'],
  dead_letters: ['name_failures', 'rename_failure', 'unname_failure'],
  sync_row_errors: ['name_failures', 'rename_failure', 'unname_failure', 'own_row_error'],
};

/** Drops the triggers before a table is distributed, because Citus rejects tables with triggers. */
async function dropFailureTriggers(tx: Connection, table: string): Promise<void> {
  for (const name of plain[table] ?? []) await tx.query(`drop trigger if exists ${name} on ${table}`);
}

/**
 * Function that returns the shard of named_failures that is colocated with the trigger's shard. Every node
 * has the metadata of all shards.
 */
const colocatedShard = `
create or replace function shard_of_names(shard text) returns text language sql stable as $$
  select 'named_failures_' || names.shardid
  from pg_dist_shard as own
  join pg_dist_shard as names on names.shardminvalue = own.shardminvalue
  where own.shardid = substring(shard from '_(\\d+)$')::bigint
    and names.logicalrelid = 'public.named_failures'::regclass
$$`;

const drop = (row: 'old') =>
  `execute format('delete from public.%I where workspace_id = $1 and name = any($2) and place = $3', shard_of_names(tg_table_name))
    using ${row}.workspace_id, ${row}.identifiers, ${row}.place;`;

const add = (row: 'new') =>
  `execute format('insert into public.%I (workspace_id, name, place) select $1, named.name, $3 from public.names_of_failure($2) as named (name)', shard_of_names(tg_table_name))
    using ${row}.workspace_id, ${row}.identifiers, ${row}.place;`;

const triggerFunction = (name: string, body: string) => `
create or replace function ${name}() returns trigger language plpgsql as $$
begin
  ${body}
  return null;
end $$`;

/** Row-level triggers, because one statement may run as several statements on shards. */
const triggerFunctions = [
  colocatedShard,
  triggerFunction('name_failure_of_shard', add('new')),
  triggerFunction('rename_failure_of_shard', `${drop('old')}\n  ${add('new')}`),
  triggerFunction('unname_failure_of_shard', drop('old')),
];

const triggers = (table: string) => [
  `create trigger name_failure after insert on ${table} for each row execute function name_failure_of_shard()`,
  `create trigger rename_failure after update of identifiers on ${table}
    for each row when (old.identifiers is distinct from new.identifiers) execute function rename_failure_of_shard()`,
  `create trigger unname_failure after delete on ${table} for each row execute function unname_failure_of_shard()`,
];

/** Creates the triggers after the table was distributed. */
async function makeFailureTriggers(tx: Connection, table: string): Promise<void> {
  if (!FAILURES.includes(table)) return;
  await tx.query('set local citus.enable_unsafe_triggers = on');
  for (const statement of [...triggerFunctions, ...triggers(table)]) await tx.query(statement);
}
