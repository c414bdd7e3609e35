import type { Connection, Pool } from './database.ts';
import { copied, distributed, keysWithWorkspace } from './distributed-tables.ts';
import { inTransaction } from './transactions.ts';

/** Why the tables cannot be distributed, for a person. */
export class NotDistributable extends Error {}

const hasCitus = "select exists (select from pg_extension where pg_extension.extname = 'citus') as found";

/** Nodes that may have shards. */
const countNodes = 'select count(*)::integer as nodes from pg_dist_node where shouldhaveshards and isactive';

/**
 * Nodes that have room for fewer transactions of two phases than the coordinator has connections: each of those may be
 * in one. Without room a transaction fails when it commits.
 */
const nodesWithoutRoom = `
  select nodename || ':' || nodeport as node, success, result, current_setting('max_connections') as wanted
  from run_command_on_workers('show max_prepared_transactions')
  where not success or result::integer < current_setting('max_connections')::integer
  order by nodename, nodeport`;

interface WithoutRoom {
  node: string;
  success: boolean;
  /** What it is set to; why it does not answer, if it does not. */
  result: string;
  wanted: string;
}

/**
 * For whoever comes to a node. To compile a plan takes a second, many times what it saves, and a node's session is not
 * the one in which that is turned off. The coordinator tells the nodes.
 */
const withoutCompiling = "select format('alter database %I set jit = off', current_database()) as statement";

const compilingNodes = `
  select nodename || ':' || nodeport as node, result
  from run_command_on_workers('show jit')
  where not success or result <> 'off'`;

/** Tables that Citus knows already, those that it keeps on the coordinator alone left out. */
const known = `
  select pg_dist_partition.logicalrelid::text as name
  from pg_dist_partition
  where pg_dist_partition.partmethod = 'h' or pg_dist_partition.repmodel = 't'`;

/** An envelope of which a part is done has its place among the envelopes of one Postgres alone. */
const hasCut = 'select exists (select from cut_envelopes) as found';

/** Functions of ours, which statements call on the nodes. */
const functions = `
  select pg_proc.oid::regprocedure::text as name
  from pg_proc
  where pg_proc.pronamespace = 'public'::regnamespace
    and pg_proc.prorettype <> 'trigger'::regtype
    and pg_proc.proname in ('uuid_v7_floor', 'names_of_failure')`;

/** @throws {NotDistributable} with what is missing; nothing is changed then */
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
    const found = rows.map(({ node, result }) => `${node} has ${result}`).join(', ');
    throw new NotDistributable(
      `DISTRIBUTE=citus needs max_prepared_transactions of ${rows[0]!.wanted} on every node, as many as the coordinator has max_connections, and ${found}: set it there and restart the node`,
    );
  }
}

/**
 * Puts the tables where they lie on a Citus: what grows with its workspace on one node, what is small on all. Each table
 * is a transaction of its own, `profiles` the last, by which everybody knows that it is done. Safe to repeat: it goes on
 * where it was left, and distributes what a later migration has made.
 *
 * @param pool of the coordinator, of one connection
 * @param tell told of each table, once it is where it belongs
 * @returns names of the tables that were distributed or copied now
 * @throws {NotDistributable} with what is missing
 */
export async function distribute(pool: Pool, tell: (table: string) => void = () => {}): Promise<string[]> {
  await requireCitus(pool);
  await setNodes(pool);
  const there = new Set((await pool.query<{ name: string }>(known)).rows.map(({ name }) => name));
  const isFirst = !there.has('profiles');
  if (isFirst) await prepare(pool);
  const done: string[] = [];
  await pool.query(placesStatement);
  for (const table of copied) {
    if (there.has(table)) continue;
    await inTransaction(pool, (tx) => copy(tx, table));
    done.push(table);
    tell(table);
  }
  for (const [table, column] of [
    ['workspace_places', 'workspace_id'],
    ...Object.entries(distributed),
  ] as const) {
    if (there.has(table)) continue;
    await inTransaction(pool, (tx) => spread(tx, table, column));
    done.push(table);
    tell(table);
  }
  return done;
}

/** Of a distributed Postgres alone: a row for each workspace in the shard where its rows are, for who inserts there. */
const placesStatement = 'create table if not exists workspace_places (workspace_id uuid primary key)';

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

/** The table to which all others are colocated. */
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
 * What triggers of one Postgres do, on a distributed one. There each table is many, its shards, and a trigger is one of
 * its shard. It writes into the shard of the other table that lies beside it, by its name.
 */

/** Tables whose triggers keep `named_failures`, the index of names under which something waits. */
const FAILURES = ['dead_letters', 'sync_row_errors'];

/** Triggers that a table has on one Postgres. */
const plain: Record<string, string[]> = {
  ledger: ['keep_cut_envelopes'],
  dead_letters: ['name_failures', 'rename_failure', 'unname_failure'],
  sync_row_errors: ['name_failures', 'rename_failure', 'unname_failure', 'own_row_error'],
};

/** Before a table is distributed: Citus takes none that has triggers. */
async function dropFailureTriggers(tx: Connection, table: string): Promise<void> {
  for (const name of plain[table] ?? []) await tx.query(`drop trigger if exists ${name} on ${table}`);
}

/** The shard of named_failures beside that of the trigger's row. Every node knows of all shards. */
const shardBeside = `
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

/** Row by row: a shard's statement may be one of several that a statement has become. */
const triggerFunctions = [
  shardBeside,
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

/** Once a table is distributed. */
async function makeFailureTriggers(tx: Connection, table: string): Promise<void> {
  if (!FAILURES.includes(table)) return;
  await tx.query('set local citus.enable_unsafe_triggers = on');
  for (const statement of [...triggerFunctions, ...triggers(table)]) await tx.query(statement);
}
