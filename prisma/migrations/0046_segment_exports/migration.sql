-- Exports of segments that the API was asked for: what is to be written, how far it is, and whom to tell. The files lie
-- in the object store of SEGMENT_EXPORT_URL.
create table segment_exports (
  workspace_id   uuid        not null,
  -- That of the request.
  id             uuid        not null,
  segment_id     uuid        not null,
  -- A random UUID and the second of the request, as the answer told it.
  object_prefix  text        not null,
  fields         text[]      not null,
  -- Names of those that are wanted alone; null: all, or none.
  attributes     text[],
  output_format  text        not null check (output_format in ('zip', 'gzip')),
  -- Where the file is downloaded; null: it goes into a bucket.
  url            text,
  callback       text,
  -- `ready`: the files are whole, and whoever is to be told is or will be.
  state          text        not null default 'open' check (state in ('open', 'ready', 'failed')),
  -- When there is something to be done next, or the lease of who does it ends; null: nothing.
  due_at         timestamptz default now(),
  leased_by      uuid,
  -- Of writing while it is open, of telling from then on.
  tries          integer     not null default 0,
  last_error     text,
  users          bigint      not null default 0,
  files          integer     not null default 0,
  bytes          bigint      not null default 0,
  requested_at   timestamptz not null default now(),
  ended_at       timestamptz,
  told_at        timestamptz,
  -- Until when the link opens; null: there is no file of ours, or no more.
  expires_at     timestamptz,
  primary key (workspace_id, id)
);

-- One of a segment at a time.
create unique index segment_exports_open on segment_exports (workspace_id, segment_id) where state = 'open';
create index segment_exports_due on segment_exports (state, due_at) where due_at is not null;
create index segment_exports_expiry on segment_exports (expires_at) where expires_at is not null;
create index segment_exports_requested on segment_exports (requested_at);
