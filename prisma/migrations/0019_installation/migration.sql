-- What an installation knows of itself: its number of lanes, which processes are part of it, and what its Redis held
-- when it was looked at last, so that a Redis which has lost something is found out, whoever runs by then.

-- One row. What is about Redis is empty while the queue lives in Postgres.
create table installation (
  only_row       boolean     primary key default true check (only_row),
  lanes          integer     not null check (lanes > 0),
  -- Grows when the queue has lost something: whoever knew the queue before must not compare it with what it is now.
  generation     integer     not null default 1,
  -- An id that Redis holds, and the highest count of additions that was seen there.
  mark           text,
  additions      bigint      not null default 0,
  looked_at      timestamptz,
  -- At that look everything accepted before had been applied; nothing at all waited where it is drained.
  waiting_since  timestamptz,
  drained        boolean     not null default false
) with (fillfactor = 50);

-- Processes that run, each of which says so every few seconds. One that ends as it should takes its row away.
create table members (
  id         uuid        primary key,
  name       text        not null,
  host       text        not null,
  pid        integer     not null,
  joined_at  timestamptz not null,
  seen_at    timestamptz not null
) with (fillfactor = 50);

-- Each time the queue had lost something, until a person confirms that it is known.
create table queue_losses (
  id               integer     generated always as identity primary key,
  found            text        not null check (found in ('empty', 'behind')),
  additions_known  bigint      not null,
  additions_found  bigint      not null,
  accepted_from    timestamptz not null,
  accepted_until   timestamptz not null,
  noticed_by       text        not null,
  confirmed_at     timestamptz
);
