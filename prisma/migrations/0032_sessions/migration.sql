-- Sessions of dashboard accounts, so that they can be seen and ended. The secret of the cookie is stored nowhere.
create table sessions (
  -- A UUIDv7, which begins with the time at which it began.
  id           uuid        primary key,
  secret_hash  bytea       not null unique,
  company_id   uuid        not null,
  -- No foreign key, which would hold up every change of an account while the migrations run: a session of an account that
  -- is gone opens nothing, and ends by itself.
  account_id   uuid        not null,
  -- The account's session_epoch at that time: with another one, the session is over.
  epoch        integer     not null,
  began_at     timestamptz not null default now(),
  ends_at      timestamptz not null,
  -- To the minute.
  seen_at      timestamptz not null default now(),
  address      text,
  -- The browser in short.
  agent        text        not null default ''
);
create index sessions_account on sessions (account_id, id);
create index sessions_company on sessions (company_id, id);
create index sessions_end on sessions (ends_at);

-- Requests of API keys by day and bucket, counted where the limits count them. A web process adds what it has counted
-- once a minute.
create table api_key_usage (
  workspace_id  uuid    not null,
  api_key_id    uuid    not null,
  day           date    not null,
  bucket        text    not null,
  requests      bigint  not null,
  -- Of these, those that the limit refused.
  refused       bigint  not null default 0,
  primary key (workspace_id, api_key_id, day, bucket)
) with (fillfactor = 70);
create index api_key_usage_day on api_key_usage (day);
