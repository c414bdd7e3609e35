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
const snapshotFunctions = `
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
end $$;`;

/**
 * Clock functions that statements call instead of those of Postgres, because `penstock_clock` precedes `pg_catalog` in the search
 * path. Statements about processes, locks and the schema name `pg_catalog` and read the machine's time, and so does the schema of
 * BullMQ, whose connections have their own search path. Defaults of columns are bound to `pg_catalog.now` when a migration
 * creates them, so they are replaced.
 */
const clockFunctions = `
create schema penstock_clock;

create table penstock_clock.state (ahead_ms float8 not null, frozen_at timestamptz);
insert into penstock_clock.state values (0, null);

create function penstock_clock.shifted(real_time timestamptz) returns timestamptz language plpgsql stable as $$
begin
  return (select coalesce(frozen_at, real_time + ahead_ms * interval '1 millisecond') from penstock_clock.state);
end $$;

create function penstock_clock.now() returns timestamptz language sql stable
  as 'select penstock_clock.shifted(pg_catalog.now())';
create function penstock_clock.statement_timestamp() returns timestamptz language sql stable
  as 'select penstock_clock.shifted(pg_catalog.statement_timestamp())';
create function penstock_clock.clock_timestamp() returns timestamptz language sql volatile
  as 'select penstock_clock.shifted(pg_catalog.clock_timestamp())';

do $$
declare
  one record;
begin
  for one in
    select adrelid::regclass as relation, attname as name, pg_get_expr(adbin, adrelid) as expression
    from pg_attrdef join pg_attribute on attrelid = adrelid and attnum = adnum
    join pg_class on pg_class.oid = adrelid
    where relnamespace = 'public'::regnamespace and pg_get_expr(adbin, adrelid) like '%now()%'
  loop
    execute format('alter table only %s alter column %I set default %s', one.relation, one.name,
      replace(one.expression, 'now()', 'penstock_clock.now()'));
  end loop;
  execute format('alter database %I set search_path = public, penstock_clock, pg_catalog', current_database());
end $$`;

/** SQL that `penstock dev` adds to its own database. Migrations do not contain it. */
export const controlFunctions = [snapshotFunctions, clockFunctions].join('\n');
