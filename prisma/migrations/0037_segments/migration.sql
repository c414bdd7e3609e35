-- Named filters over the users of a workspace. Who is in one is found when somebody asks, and stored nowhere.
create table segments (
  workspace_id  uuid        not null,
  id            uuid        not null,
  name          text        not null,
  -- What a person says that it is for.
  purpose       text        not null default '',
  -- As src/profile/segment.ts reads it.
  definition    jsonb       not null,
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  archived_at   timestamptz,
  primary key (workspace_id, id),
  unique (workspace_id, name)
);
