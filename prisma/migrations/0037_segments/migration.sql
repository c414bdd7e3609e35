-- Named filters over the users of a workspace. Who is in one is found when somebody asks, and stored nowhere.
create table segments (
  id            uuid        primary key,
  workspace_id  uuid        not null,
  name          text        not null,
  -- What a person says that it is for.
  purpose       text        not null default '',
  -- As src/profile/segment.ts reads it.
  definition    jsonb       not null,
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  archived_at   timestamptz,
  unique (workspace_id, name)
);
create index segments_of_workspace on segments (workspace_id, id) where archived_at is null;
