-- Streams: what takes effect in a workspace, sent on to receivers outside. The log has a row for each transaction and
-- workspace that has a destination; events and purchases stand in it by their ids alone.

create table stream_destinations (
  workspace_id  uuid        not null,
  id            uuid        not null,
  name          text        not null,
  kind          text        not null,
  -- As src/streams/open-destination.ts reads it; no secrets.
  settings      jsonb       not null,
  -- Encrypted, for this destination alone.
  secret        bytea,
  state         text        not null default 'active' check (state in ('active', 'paused')),
  -- The cursor: rows of the log up to this id are delivered, and so many entries of the next one.
  position      bigint      not null,
  place         integer     not null default 0,
  created_at    timestamptz not null default now(),
  delivered     bigint      not null default 0,
  delivered_at  timestamptz,
  -- Vain tries since the last delivery.
  failures      integer     not null default 0,
  last_error    text,
  failed_at     timestamptz,
  next_try_at   timestamptz,
  -- Rows of the log that went while they were not delivered.
  lost          bigint      not null default 0,
  lost_at       timestamptz,
  -- The process that delivers, for as long as it says so.
  leased_by     uuid,
  leased_until  timestamptz,
  primary key (workspace_id, id),
  unique (workspace_id, name)
);

-- Taken by the last statement of a transaction: what one has waited for another with has the later id.
create sequence stream_log_id;

create table stream_log (
  workspace_id  uuid        not null,
  id            bigint      not null default nextval('stream_log_id'),
  at            timestamptz not null,
  -- A letter an entry: e, p, a, s or i.
  kinds         text        not null,
  profile_ids   uuid[]      not null,
  -- Of the event or purchase; of everything else its own.
  ids           uuid[]      not null,
  -- What there is to be said of the others, by the place of the entry.
  details       json,
  primary key (workspace_id, id)
);
create index stream_log_at on stream_log (at);
