-- Months of events and purchases that a workspace keeps, where it has a number of its own; null: for ever.
create table retention_policies (
  workspace_id  uuid        primary key,
  months        integer     check (months > 0),
  updated_at    timestamptz not null default now()
);

-- The index of the archive: a row for each file, and for each month that went without one.
create table archive_files (
  workspace_id    uuid        not null,
  -- The first day of the month in which the objects were accepted.
  month           date        not null,
  kind            text        not null check (kind in ('events', 'purchases')),
  id              uuid        not null,
  -- `archiving`: it is being written; `verified`: it was read back, its rows are in the table still; `removed`: they are
  -- not; `restored`: they are again; `replaced`: another file has taken its place, and it is to be removed.
  state           text        not null check (state in ('archiving', 'verified', 'removed', 'restored', 'replaced')),
  -- Its key in the archive; null: the rows went without one.
  object          text,
  rows            bigint      not null default 0,
  least           uuid,
  greatest        uuid,
  checksum        numeric     not null default 0,
  bytes           bigint      not null default 0,
  sha256          text,
  created_at      timestamptz not null default now(),
  changed_at      timestamptz not null default now(),
  -- Of restored ones: no run touches the month before that.
  restored_until  timestamptz,
  primary key (workspace_id, month, kind, id)
);

-- Workspaces of whose archive deleted users have not been erased yet.
create table archive_erasures (
  workspace_id  uuid        primary key,
  -- The first and the last delete since the archive was erased.
  since         timestamptz not null,
  latest        timestamptz not null
);
