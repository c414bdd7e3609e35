-- Processes, as each tells of itself every few seconds, for people who look at the fleet. No guarantee rests on them:
-- who may add to the queue is in `members`. One that ends as it should takes its row away; one that falls silent leaves
-- it for an hour.
create table processes (
  id                  uuid        primary key,
  -- As the Procfile has it: web, worker, sync, board.
  name                text        not null,
  host                text        not null,
  pid                 integer     not null,
  version             text        not null,
  -- Where its /healthz, /readyz and /metrics are, as host:port; null: nowhere.
  address             text,
  -- Of a worker: those of which it has applied something lately.
  lanes               integer[]   not null default '{}',
  -- What it cannot do without and does not have, as /readyz names it.
  missing             text[]      not null default '{}',
  -- Since its start: accepted by web, applied by a worker, handed to the lanes by sync.
  objects             bigint      not null,
  objects_per_second  real        not null,
  resident_bytes      bigint      not null,
  -- Share of the time since its last row for which its event loop was at work.
  loop_busy           real        not null,
  started_at          timestamptz not null,
  seen_at             timestamptz not null
) with (fillfactor = 50);
