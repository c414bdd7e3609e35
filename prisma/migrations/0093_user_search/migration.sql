-- The index of the console's search by a part of a name or identifier. Upkeep fills it from the profiles, at most 2 % of
-- the time of one connection, so that writes of profiles cost the same as without it. The trigrams are hashes that include
-- the workspace, and need no extension.
create table user_search (
  workspace_id  uuid       not null,
  profile_id    uuid       not null,
  -- Names and identifiers in lower case and without marks, one a line.
  text          text       not null,
  grams         integer[]  not null,
  -- A hash of what the text was made from, by which upkeep finds users that have changed.
  source        bigint     not null,
  primary key (workspace_id, profile_id)
);
create index user_search_grams on user_search using gin (grams);

-- The position of the pass over all profiles: one row. A worker that has the lease continues it.
create table user_search_pass (
  id            boolean      not null default true primary key check (id),
  workspace_id  uuid         not null default '00000000-0000-0000-0000-000000000000',
  profile_id    uuid         not null default '00000000-0000-0000-0000-000000000000',
  -- No worker begins a turn before this time.
  leased_until  timestamptz  not null default '-infinity',
  -- Passes over all profiles that have ended. While it is 0, the search by parts does not know all users.
  passes        bigint       not null default 0
);
insert into user_search_pass default values;

-- The external id that a merged profile had, for people who search for it. Null for merges of an earlier release.
alter table merged_profiles add column external_id text;
