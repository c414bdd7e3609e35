-- Warehouse integrations: tables elsewhere, the rows of which are synced into profiles on a schedule.

-- `source` says where the rows are, without a secret; `credentials` is encrypted with a key that is not in here.
-- `last_timestamp` is the last UPDATED_AT that was processed: the next sync starts there, rows of that very time
-- included. It is kept to the microsecond, which is what a warehouse knows.
create table integrations (
  id                    uuid        primary key,
  workspace_id          uuid        not null references workspaces (id),
  name                  text        not null,
  kind                  text        not null check (kind in ('attributes', 'events', 'purchases', 'deletes')),
  warehouse_type        text        not null,
  status                text        not null check (status in ('draft', 'active', 'paused')),
  source                jsonb       not null,
  credentials           bytea,
  schedule              text,
  contact_emails        text        not null default '',
  update_existing_only  boolean     not null default false,
  last_timestamp        timestamptz,
  created_at            timestamptz not null default now(),
  updated_at            timestamptz not null default now(),
  unique (workspace_id, name)
);

-- One row a run. It is the truth about the run; the queue only says that there is one to look at. Ids are UUIDv7 and so
-- the order of lists. `rows_synced` and `rows_failed` count rows that have ended; `message` says why a run failed.
create table sync_jobs (
  id              uuid        primary key,
  integration_id  uuid        not null references integrations (id) on delete cascade,
  asked_by        text        not null check (asked_by in ('schedule', 'api', 'operator')),
  status          text        not null default 'running'
                              check (status in ('running', 'success', 'partial', 'error', 'config_error')),
  started_at      timestamptz not null default now(),
  finished_at     timestamptz,
  last_timestamp  timestamptz,
  rows_read       bigint      not null default 0,
  rows_synced     bigint      not null default 0,
  rows_failed     bigint      not null default 0,
  message         text,
  cancelled_at    timestamptz
);
-- One run of an integration at a time, whoever asks.
create unique index sync_jobs_running on sync_jobs (integration_id) where finished_at is null;
create index sync_jobs_integration on sync_jobs (integration_id, id);

-- What a run is handing to the lanes. It is written before the lanes get it and taken away when it has taken effect,
-- together with the counts and the timestamp: a run that goes on after a crash hands the same envelopes over again,
-- which the ledger knows, and reads on behind them. `entries` is what the producer takes; `rows` is, for each object of
-- it, the row that it was.
create table sync_chunks (
  job_id          uuid        primary key references sync_jobs (id) on delete cascade,
  envelope_ids    uuid[]      not null,
  entries         json        not null,
  rows            json        not null,
  progress        json        not null,
  staged_at       timestamptz not null default now()
);

-- The rows of an integration's `last_timestamp` that have been processed, by fingerprint: when that time is read
-- again they are passed over. `seen` counts equal rows. Beside them stand the rows without a readable time that the
-- run in hand has counted, until it ends: one that goes on after a crash reads them again.
create table sync_boundary (
  integration_id  uuid     not null references integrations (id) on delete cascade,
  fingerprint     bytea    not null,
  seen            integer  not null,
  unreadable      boolean  not null default false,
  primary key (integration_id, fingerprint)
);

-- What an attempt at a run has still to pass over: the boundary as it was when the attempt began to read, counted down
-- as equal rows are met. A table, since a million rows may have one timestamp.
create table sync_expected (
  attempt      uuid     not null,
  fingerprint  bytea    not null,
  job_id       uuid     not null references sync_jobs (id) on delete cascade,
  remaining    integer  not null,
  primary key (attempt, fingerprint)
);
create index sync_expected_job on sync_expected (job_id);

-- Why a row had no effect; kept for 30 days.
create table sync_row_errors (
  job_id       uuid        not null references sync_jobs (id) on delete cascade,
  number       bigint      not null,
  updated_at   text,
  identifier   text,
  payload      text,
  reason       text        not null,
  occurred_at  timestamptz not null default now(),
  primary key (job_id, number)
);
create index sync_row_errors_time on sync_row_errors (occurred_at);
