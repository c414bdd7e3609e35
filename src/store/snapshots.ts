import { type Pool, PostgresClient } from './database.ts';

/** Tables of processes, of the queue's settings and of the schema: they belong to the running program, not to its data. */
const KEPT = [
  ...['_prisma_migrations', 'installation', 'members', 'processes', 'departed_processes', 'queue_shards'],
  ...['fleet_history', 'meta', 'migration'],
];

/**
 * Snapshots are schemas with a copy of each table that has rows. Copying back deletes rows instead of truncating tables: most
 * tables of a test are empty or small, and a new file for each table and index takes longer. Triggers and foreign keys are
 * off meanwhile: the rows were consistent when they were copied.
 */
const functions = `
create schema penstock_dev;

create function penstock_dev.tables(
  out relation regclass, out copy text, out columns text, out has_rows boolean
) returns setof record language plpgsql as $$
begin
  for relation, copy, columns in
    select pg_class.oid, pg_namespace.nspname || '.' || pg_class.relname, (
      select string_agg(quote_ident(attname), ', ' order by attnum)
      from pg_attribute
      where attrelid = pg_class.oid and attnum > 0 and not attisdropped and attgenerated = ''
    )
    from pg_class join pg_namespace on pg_namespace.oid = pg_class.relnamespace
    where pg_class.relkind = 'r' and pg_namespace.nspname in ('public', 'bullmq')
      and pg_class.relname <> all (array[${KEPT.map((name) => `'${name}'`).join(', ')}])
  loop
    execute format('select exists (select from %s)', relation) into has_rows;
    return next;
  end loop;
end $$;

create function penstock_dev.take(name text) returns void language plpgsql as $$
declare
  snapshot text := 'penstock_dev_' || name;
  one record;
begin
  execute format('drop schema if exists %I cascade', snapshot);
  execute format('create schema %I', snapshot);
  for one in select * from penstock_dev.tables() loop
    continue when not one.has_rows;
    execute format('create table %I.%I as select %s from %s', snapshot, one.copy, one.columns, one.relation);
  end loop;
end $$;

create function penstock_dev.restore(name text) returns boolean language plpgsql as $$
declare
  snapshot text := 'penstock_dev_' || name;
  one record;
begin
  if to_regnamespace(quote_ident(snapshot)) is null then return false; end if;
  set local session_replication_role = replica;
  for one in select * from penstock_dev.tables() loop
    if one.has_rows then execute format('delete from %s', one.relation); end if;
    continue when to_regclass(format('%I.%I', snapshot, one.copy)) is null;
    execute format(
      'insert into %s (%s) overriding system value select %s from %I.%I',
      one.relation, one.columns, one.columns, snapshot, one.copy);
  end loop;
  return true;
end $$`;

/** Name of the snapshot that holds the first workspace and its credentials, and no user. */
export const EMPTY_SNAPSHOT = 'empty';

/** Creates the functions of snapshots in a database that is used for tests only, and takes the first snapshot. */
export async function prepareSnapshots(url: string): Promise<void> {
  const client = new PostgresClient({ connectionString: url });
  await client.connect();
  try {
    await client.query(functions);
    await client.query('select penstock_dev.take($1)', [EMPTY_SNAPSHOT]);
  } finally {
    await client.end();
  }
}

/** Copies all rows into the snapshot of this name, and replaces an earlier one. */
export async function takeSnapshot(pool: Pool, name: string): Promise<void> {
  await pool.query('select penstock_dev.take($1)', [name]);
}

/**
 * Replaces all rows by those of a snapshot.
 * @returns false: there is no snapshot of this name
 */
export async function restoreSnapshot(pool: Pool, name: string): Promise<boolean> {
  const { rows } = await pool.query<{ restored: boolean }>('select penstock_dev.restore($1) as restored', [
    name,
  ]);
  return rows[0]!.restored;
}

const findUnfinishedStatement = `
  select
    (select count(*)::integer from sync_jobs where finished_at is null) as "syncRuns",
    (select count(*)::integer from segment_exports where state = 'open') as "segmentExports"`;

/** Counts work of sync processes that has been accepted and has not ended. */
export async function countUnfinishedWork(pool: Pool): Promise<{ syncRuns: number; segmentExports: number }> {
  const { rows } = await pool.query(findUnfinishedStatement);
  return rows[0]!;
}

/** An object that was accepted and could not be applied. */
export interface WaitingLetter {
  id: string;
  requestId: string;
  kind: string;
  object: unknown;
  reason: string;
}

const listLettersStatement = `
  select id, request_id as "requestId", kind, object, reason
  from kept_dead_letters where state = 'waiting' order by id limit $1`;

/** Lists the first dead letters of all workspaces. */
export async function listWaitingLetters(pool: Pool, limit: number): Promise<WaitingLetter[]> {
  const { rows } = await pool.query<WaitingLetter>(listLettersStatement, [limit]);
  return rows;
}
