-- What makes delivery exact: the ledger of applied envelopes, the dead letters, and the counters that are
-- written in the same transactions.

-- One row per applied envelope, written in the transaction that applies it: seen already, skipped.
-- A row must outlive every way in which its envelope can be delivered again.
create table ledger (
  envelope_id  uuid        primary key,
  applied_at   timestamptz not null default now()
);

-- An object that no retry can apply, with the reason, written in the transaction of its envelope.
-- `object` is json, not jsonb: it has to hold exactly what jsonb refused as well.
create table dead_letters (
  id            uuid        primary key,
  workspace_id  uuid        not null,
  request_id    text        not null,
  kind          text        not null,
  job_name      text        not null,
  object        json        not null,
  reason        text        not null,
  state         text        not null default 'waiting' check (state in ('waiting', 'replaying', 'replayed')),
  replays       integer     not null default 0,
  failed_at     timestamptz not null default now(),
  replayed_at   timestamptz
);
create index dead_letters_workspace on dead_letters (workspace_id, failed_at);
create index dead_letters_waiting on dead_letters (id) where state = 'waiting';

-- Objects processed, per workspace and day (UTC). The lane is part of the key so that two lanes that are
-- applied at the same time never wait for each other's row.
create table usage (
  workspace_id  uuid    not null,
  day           date    not null,
  lane          integer not null,
  attributes    bigint  not null default 0,
  events        bigint  not null default 0,
  purchases     bigint  not null default 0,
  primary key (workspace_id, day, lane)
) with (fillfactor = 50);

-- What each lane has done since the installation was made: counters for the metrics of the whole fleet.
create table lane_totals (
  lane          integer          primary key,
  envelopes     bigint           not null default 0,
  objects       bigint           not null default 0,
  dead_letters  bigint           not null default 0,
  apply_seconds double precision not null default 0
) with (fillfactor = 50);
