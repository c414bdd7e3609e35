-- Preference centers: pages on which users choose what they receive, and the links that open them.

create table preference_centers (
  workspace_id       uuid        not null references workspaces (id),
  -- The preference_center_api_id; a caller may choose it, hence unique only in its workspace.
  id                 uuid        not null,
  name               text        not null,
  title              text        not null,
  -- Liquid templates, as sent.
  page_html          text        not null,
  confirmation_html  text        not null,
  options            jsonb       not null default '{}',
  state              text        not null check (state in ('active', 'draft')),
  created_at         timestamptz not null default now(),
  updated_at         timestamptz not null default now(),
  primary key (workspace_id, id),
  unique (workspace_id, name)
);

-- What a workspace's links are signed with. It is made once and lives here, so that a link outlives restarts and
-- opens on every web process.
create table preference_link_keys (
  workspace_id  uuid        primary key references workspaces (id),
  secret        bytea       not null,
  created_at    timestamptz not null default now()
);

-- Links say themselves what they are for and until when, and are stored nowhere. Those of the subject that were
-- made before this time open nothing.
create table preference_link_revocations (
  workspace_id  uuid        not null references workspaces (id),
  subject_kind  text        not null check (subject_kind in ('center', 'user')),
  -- The center's id, or the profile's.
  subject_id    uuid        not null,
  revoked_at    timestamptz not null default now(),
  primary key (workspace_id, subject_kind, subject_id)
);
