-- Who may send what: workspaces, their API keys, their rate limits and their subscription groups.
-- Small tables, read through a short-lived cache at the edge; nothing here is written on the hot path.

create table workspaces (
  id          uuid        primary key,
  name        text        not null unique,
  created_at  timestamptz not null default now()
);

-- A key is a random secret; only its SHA-256 is kept, and look-up is by that hash.
-- `identifier` is the visible start of the key, so that a person can tell keys apart.
create table api_keys (
  id            uuid        primary key,
  workspace_id  uuid        not null references workspaces (id),
  name          text        not null,
  identifier    text        not null,
  key_hash      bytea       not null unique,
  permissions   text[]      not null,
  ip_allowlist  text[]      not null default '{}',
  created_at    timestamptz not null default now(),
  last_seen_at  timestamptz,
  revoked_at    timestamptz
);
create index api_keys_workspace on api_keys (workspace_id);

-- A row overrides the limit that the specification gives a bucket, for one workspace.
create table rate_limits (
  workspace_id    uuid    not null references workspaces (id),
  bucket          text    not null,
  requests        integer not null check (requests > 0),
  window_seconds  integer not null check (window_seconds > 0),
  primary key (workspace_id, bucket)
);

create table subscription_groups (
  id            uuid        primary key,
  workspace_id  uuid        not null references workspaces (id),
  name          text        not null,
  channel       text        not null check (channel in ('email', 'sms', 'whatsapp')),
  created_at    timestamptz not null default now(),
  archived_at   timestamptz,
  unique (workspace_id, name)
);
