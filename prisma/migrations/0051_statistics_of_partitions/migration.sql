-- Where an extension has taken a table apart and laid its rows on other servers (Citus), samples are theirs: it refuses to
-- have them set, and with that each new month's partition. Everywhere else nothing changes.
create or replace function keep_lean_statistics(relation regclass) returns void
language plpgsql as $$
declare
  attribute record;
  elsewhere boolean;
begin
  if to_regclass('pg_catalog.pg_dist_partition') is not null then
    execute 'select exists (select from pg_catalog.pg_dist_partition where logicalrelid = $1)' into elsewhere using relation;
    if elsewhere then
      return;
    end if;
  end if;
  for attribute in
    select attname, case when atttypid = 'jsonb'::regtype then 0 else 10 end as target
    from pg_attribute
    where attrelid = relation and attnum > 0 and not attisdropped
  loop
    execute format('alter table %s alter column %I set statistics %s', relation, attribute.attname, attribute.target);
  end loop;
end
$$;
