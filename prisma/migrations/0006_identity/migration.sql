-- Identity: what became of profiles that were merged or deleted, and of external ids that were renamed.

-- An external id that was renamed away. It still resolves; only the profile's own one is unique in `profiles`.
create table deprecated_external_ids (
  workspace_id  uuid        not null,
  external_id   text        not null,
  profile_id    uuid        not null,
  created_at    timestamptz not null,
  primary key (workspace_id, external_id)
);
create index deprecated_external_ids_profile on deprecated_external_ids (workspace_id, profile_id);

-- Events and purchases move by reference: those of `profile_id` belong to `kept_id`, which may have been merged
-- itself. One row a merge, whatever the profile had done.
create table merged_profiles (
  workspace_id  uuid        not null,
  profile_id    uuid        not null,
  kept_id       uuid        not null,
  merged_at     timestamptz not null,
  primary key (workspace_id, profile_id)
);
create index merged_profiles_kept on merged_profiles (workspace_id, kept_id);

-- What is left to do for a profile that is gone, beside the lanes: once no transaction is left that may have found
-- it, the sums of a merged one that came late are brought to who took it in, and what a deleted one has done is
-- erased, in slices.
create table removed_profiles (
  workspace_id  uuid        not null,
  profile_id    uuid        not null,
  fate          text        not null check (fate in ('merged', 'deleted')),
  removed_at    timestamptz not null,
  primary key (workspace_id, profile_id)
);

-- The way from a user to what the user has done.
create index events_profile on events (workspace_id, profile_id);
create index purchases_profile on purchases (workspace_id, profile_id);

-- Sessions per app. Whatever records sessions writes here; /users/merge and /users/export/ids read it.
create table app_summaries (
  workspace_id   uuid        not null,
  profile_id     uuid        not null,
  app_id         text        not null,
  sessions       bigint      not null,
  first_session  timestamptz not null,
  last_session   timestamptz not null,
  primary key (workspace_id, profile_id, app_id)
) with (fillfactor = 70);

-- Whom a dead letter's object names, as `kind:value`, so that a delete of the user finds it.
alter table dead_letters add column identifiers text[] not null default '{}';
create index dead_letters_identifiers on dead_letters using gin (identifiers) where identifiers <> '{}';

-- How the objects ended whose sender waits for it; kept for a day.
create table outcomes (
  object_id   uuid        primary key,
  error       text,
  decided_at  timestamptz not null default now()
);

-- Lanes that have come to a fence whose first lane another process works. What a crash loses is announced again.
create table fence_arrivals (
  fence_id    uuid        not null,
  lane        integer     not null,
  arrived_at  timestamptz not null default now(),
  primary key (fence_id, lane)
);

alter table usage add column identity bigint not null default 0;
