import type { Connection } from './database.ts';

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
export async function dropFailureTriggers(tx: Connection, table: string): Promise<void> {
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
const functions = [
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
export async function makeFailureTriggers(tx: Connection, table: string): Promise<void> {
  if (!FAILURES.includes(table)) return;
  await tx.query('set local citus.enable_unsafe_triggers = on');
  for (const statement of [...functions, ...triggers(table)]) await tx.query(statement);
}
