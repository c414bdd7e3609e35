-- A dead letter that nobody will replay is discarded, with a reason; one whose object a person has mended keeps the object
-- that came. It stays until its user is deleted, as every dead letter does.
alter table dead_letters drop constraint dead_letters_state_check;
alter table dead_letters add constraint dead_letters_state_check
  check (state in ('waiting', 'replaying', 'replayed', 'discarded'));
alter table dead_letters
  add column discarded_at     timestamptz,
  add column discarded_by     text,
  add column discard_reason   text,
  add column mended_at        timestamptz,
  add column mended_by        text,
  add column original_object  json;

-- Those that wait, group by group: what has one cause begins alike.
create index dead_letters_groups on dead_letters (workspace_id, left(kind, 60), left(reason, 120), id)
  where state = 'waiting';
create index dead_letters_closed on dead_letters (workspace_id, state, id) where state in ('replaying', 'discarded');

create or replace view kept_dead_letters as
select
  dead_letters.id, dead_letters.workspace_id, dead_letters.request_id, dead_letters.kind, dead_letters.job_name,
  dead_letters.object, dead_letters.reason, dead_letters.state, dead_letters.replays, dead_letters.failed_at,
  dead_letters.replayed_at, dead_letters.identifiers, dead_letters.discarded_at, dead_letters.discarded_by,
  dead_letters.discard_reason, dead_letters.mended_at, dead_letters.mended_by
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
