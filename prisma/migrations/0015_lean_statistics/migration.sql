-- Statistics of the tables that grow with every object. While a table is small, each tenth more has autovacuum analyze
-- it again: 30,000 rows, every column, the jsonb ones compared with each other. On a new installation that was a
-- quarter of what Postgres did. The statements there go by the keys, so a tenth of the sample serves them; no
-- statement asks for a part of a jsonb column.

-- Samples 3,000 rows of `relation`, and nothing of its jsonb columns.
create function keep_lean_statistics(relation regclass) returns void
language plpgsql as $$
declare
  attribute record;
begin
  for attribute in
    select attname, case when atttypid = 'jsonb'::regtype then 0 else 10 end as target
    from pg_attribute
    where attrelid = relation and attnum > 0 and not attisdropped
  loop
    execute format('alter table %s alter column %I set statistics %s', relation, attribute.attname, attribute.target);
  end loop;
end
$$;

select keep_lean_statistics(relation::regclass)
from unnest(array['profiles', 'user_aliases', 'event_summaries', 'purchase_summaries']) as relation;

-- The month's partitions that are there, and the default ones.
select keep_lean_statistics(inhrelid::regclass)
from pg_inherits
where inhparent in ('events'::regclass, 'purchases'::regclass);

-- As before, and each partition that it makes has lean statistics too.
create or replace function ensure_month_partitions(start timestamptz, months integer) returns void
language plpgsql as $$
declare
  month_start timestamptz;
  kind        text;
  partition   text;
begin
  perform pg_advisory_xact_lock(hashtext('penstock.ensure_month_partitions'));
  for step in 0..months loop
    month_start := date_trunc('month', start, 'UTC') + make_interval(months => step);
    foreach kind in array array['events', 'purchases'] loop
      partition := kind || '_' || to_char(month_start at time zone 'UTC', 'YYYY_MM');
      continue when to_regclass(quote_ident(partition)) is not null;
      execute format(
        'create table %I partition of %I for values from (%L) to (%L)',
        partition, kind, uuid_v7_floor(month_start), uuid_v7_floor(month_start + interval '1 month'));
      perform keep_lean_statistics(partition::regclass);
    end loop;
  end loop;
end
$$;
