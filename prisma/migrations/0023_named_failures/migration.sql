-- What waits for one user among the dead letters and the failed rows of warehouses may be very much. A merge or delete
-- writes down the names under which something waits, and it is handed over or erased in slices beside the lanes. What is
-- to be erased is gone for whoever reads as soon as the delete has taken effect.

-- The order in which dead letters and failed rows were written down: a delete takes away what came before it.
create sequence failure_places;
alter table dead_letters add column place bigint not null default nextval('failure_places');
alter table sync_row_errors add column place bigint not null default nextval('failure_places');
create unique index dead_letters_place on dead_letters (place);
create unique index sync_row_errors_place on sync_row_errors (place);

-- Whose a failed row is. Processes of an earlier release do not say so.
alter table sync_row_errors add column workspace_id uuid;
update sync_row_errors set workspace_id = integrations.workspace_id
from sync_jobs join integrations on integrations.id = sync_jobs.integration_id
where sync_jobs.id = sync_row_errors.job_id;
alter table sync_row_errors alter column workspace_id set not null;

create function own_row_error() returns trigger language plpgsql as $$
begin
  new.workspace_id := (
    select integrations.workspace_id
    from sync_jobs join integrations on integrations.id = sync_jobs.integration_id
    where sync_jobs.id = new.job_id);
  return new;
end $$;
create trigger own_row_error before insert on sync_row_errors
  for each row when (new.workspace_id is null) execute function own_row_error();

-- A row per name that a dead letter or a failed row goes by, in their order: an index of `identifiers`, in a form that
-- can be read in slices, and by workspace. `u:` and an id is a user whom it belongs to; all other names were given by who
-- sent it, and may mean somebody else later on.
create table named_failures (
  workspace_id  uuid    not null,
  name          text    not null,
  place         bigint  not null,
  primary key (workspace_id, name, place)
);

-- Names longer than any that a user can have come from objects that break their contract; an index has no room for them.
create function names_of_failure(identifiers text[]) returns setof text language sql immutable as $$
  select distinct named.name from unnest(identifiers) as named (name) where octet_length(named.name) <= 1024
$$;

insert into named_failures (workspace_id, name, place)
select dead_letters.workspace_id, named.name, dead_letters.place
from dead_letters cross join lateral names_of_failure(dead_letters.identifiers) as named (name)
union all
select sync_row_errors.workspace_id, named.name, sync_row_errors.place
from sync_row_errors cross join lateral names_of_failure(sync_row_errors.identifiers) as named (name);

drop index dead_letters_identifiers;
drop index sync_row_errors_identifiers;

-- Kept by triggers, as an index is: whoever writes or deletes, in whichever release or by a cascade.
create function name_failures() returns trigger language plpgsql as $$
begin
  insert into named_failures (workspace_id, name, place)
  select made.workspace_id, named.name, made.place
  from made cross join lateral names_of_failure(made.identifiers) as named (name);
  return null;
end $$;

create function rename_failure() returns trigger language plpgsql as $$
begin
  delete from named_failures
  where workspace_id = old.workspace_id and name = any(old.identifiers) and place = old.place;
  insert into named_failures (workspace_id, name, place)
  select new.workspace_id, named.name, new.place from names_of_failure(new.identifiers) as named (name);
  return null;
end $$;

create function unname_failure() returns trigger language plpgsql as $$
begin
  delete from named_failures
  where workspace_id = old.workspace_id and name = any(old.identifiers) and place = old.place;
  return null;
end $$;

create trigger name_failures after insert on dead_letters
  referencing new table as made for each statement execute function name_failures();
create trigger rename_failure after update of identifiers on dead_letters
  for each row when (old.identifiers is distinct from new.identifiers) execute function rename_failure();
create trigger unname_failure after delete on dead_letters
  for each row execute function unname_failure();

create trigger name_failures after insert on sync_row_errors
  referencing new table as made for each statement execute function name_failures();
create trigger rename_failure after update of identifiers on sync_row_errors
  for each row when (old.identifiers is distinct from new.identifiers) execute function rename_failure();
create trigger unname_failure after delete on sync_row_errors
  for each row execute function unname_failure();

-- What a merge or delete has left to do under a name: what was written down behind `after` and up to `up_to` belongs to
-- `owner_id`, a row of removed_profiles. Where a delete has named nobody, that is the id of a user who never was.
create table left_names (
  workspace_id  uuid    not null,
  name          text    not null,
  owner_id      uuid    not null,
  after         bigint  not null default 0,
  up_to         bigint  not null,
  primary key (workspace_id, name, owner_id)
);
-- The table is nearly always empty, and then all ways into it cost the same: for what is looked up there is one only.
create index left_names_owner on left_names (owner_id);

-- Dead letters but for those of users who were deleted, themselves or with whoever took them in. Each look-up goes by a
-- primary key, whatever the planner knows of the tables.
create view kept_dead_letters as
select
  dead_letters.id, dead_letters.workspace_id, dead_letters.request_id, dead_letters.kind, dead_letters.job_name,
  dead_letters.object, dead_letters.reason, dead_letters.state, dead_letters.replays, dead_letters.failed_at,
  dead_letters.replayed_at, dead_letters.identifiers
from dead_letters
where not exists (
  with recursive owners as (
    select substr(named.name, 3)::uuid as id
    from unnest(dead_letters.identifiers) as named (name)
    where named.name like 'u:%'
    union
    select hit.owner_id
    from unnest(dead_letters.identifiers) as named (name)
    cross join lateral (
      select left_names.owner_id, left_names.after, left_names.up_to
      from left_names
      where left_names.workspace_id = dead_letters.workspace_id and left_names.name = named.name
      offset 0
    ) as hit
    where dead_letters.place > hit.after and dead_letters.place <= hit.up_to
    union
    select hit.kept_id
    from owners
    cross join lateral (
      select merged_profiles.kept_id
      from merged_profiles
      where merged_profiles.workspace_id = dead_letters.workspace_id and merged_profiles.profile_id = owners.id
      limit 1
    ) as hit
  )
  select
  from owners
  where (
    select removed_profiles.fate
    from removed_profiles
    where removed_profiles.workspace_id = dead_letters.workspace_id and removed_profiles.profile_id = owners.id
    limit 1) = 'deleted');

-- The same of failed rows.
create view kept_row_errors as
select
  sync_row_errors.job_id, sync_row_errors.number, sync_row_errors.updated_at, sync_row_errors.identifier,
  sync_row_errors.payload, sync_row_errors.reason, sync_row_errors.occurred_at, sync_row_errors.identifiers,
  sync_row_errors.synced
from sync_row_errors
where not exists (
  with recursive owners as (
    select substr(named.name, 3)::uuid as id
    from unnest(sync_row_errors.identifiers) as named (name)
    where named.name like 'u:%'
    union
    select hit.owner_id
    from unnest(sync_row_errors.identifiers) as named (name)
    cross join lateral (
      select left_names.owner_id, left_names.after, left_names.up_to
      from left_names
      where left_names.workspace_id = sync_row_errors.workspace_id and left_names.name = named.name
      offset 0
    ) as hit
    where sync_row_errors.place > hit.after and sync_row_errors.place <= hit.up_to
    union
    select hit.kept_id
    from owners
    cross join lateral (
      select merged_profiles.kept_id
      from merged_profiles
      where merged_profiles.workspace_id = sync_row_errors.workspace_id and merged_profiles.profile_id = owners.id
      limit 1
    ) as hit
  )
  select
  from owners
  where (
    select removed_profiles.fate
    from removed_profiles
    where removed_profiles.workspace_id = sync_row_errors.workspace_id and removed_profiles.profile_id = owners.id
    limit 1) = 'deleted');
