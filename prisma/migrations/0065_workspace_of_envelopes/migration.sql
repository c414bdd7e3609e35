-- Whose an envelope or an outcome is: on a distributed Postgres its row lies with its workspace. NIL stands for an
-- envelope that several share, and for whatever a worker of an earlier release writes down. On one Postgres the ids stay
-- the keys, since they are unique by themselves, and in the order of time.
alter table ledger add column workspace_id uuid not null default '00000000-0000-0000-0000-000000000000';
alter table cut_envelopes add column workspace_id uuid not null default '00000000-0000-0000-0000-000000000000';
alter table outcomes add column workspace_id uuid not null default '00000000-0000-0000-0000-000000000000';

-- Failed rows say whose they are, to whoever looks for those of one workspace.
create or replace view kept_row_errors as
select
  sync_row_errors.job_id, sync_row_errors.number, sync_row_errors.updated_at, sync_row_errors.identifier,
  sync_row_errors.payload, sync_row_errors.reason, sync_row_errors.occurred_at, sync_row_errors.identifiers,
  sync_row_errors.synced, sync_row_errors.workspace_id
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
