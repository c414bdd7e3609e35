-- Files that `penstock import` has brought in, or is bringing in: how far each has come, so that a second run of a
-- finished one does nothing, and that of one that was left goes on behind what the lanes have.

create table imports (
  workspace_id  uuid        not null,
  -- SHA-256 of what the file is known by: its bytes and what its rows are, or the name that a person has given it.
  key           bytea       not null,
  id            uuid        not null,
  -- As the person has named it.
  file          text        not null,
  digest        bytea       not null,
  -- What decides how rows are read: it has to be the same when the import is gone on with.
  reading       json        not null,
  started_at    timestamptz not null default now(),
  finished_at   timestamptz,
  -- Rows that are done with, those of `staged` included: they are in the lanes, will be, or were refused.
  rows_done     bigint      not null default 0,
  accepted      bigint      not null default 0,
  refused       bigint      not null default 0,
  -- Bytes of the file of refused rows; what stands behind them is of rows that are not done with.
  refused_bytes bigint      not null default 0,
  -- The outbox: envelopes that the lanes may not have yet, and their ids, which the ledger keeps meanwhile.
  staged        json,
  envelope_ids  uuid[]      not null default '{}',
  primary key (workspace_id, key)
);
