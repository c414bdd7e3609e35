-- What web processes refuse, and how near they are to their high-water marks.
alter table processes
  add column refused            bigint not null default 0,
  add column refused_per_second real   not null default 0,
  -- Of a web process, by name: value, mark, unit, and whether work is refused for it.
  add column marks              jsonb;

-- What processes had done that are gone, by their name: with those that are there it only ever grows.
create table departed_processes (
  name    text   primary key,
  objects bigint not null,
  refused bigint not null
);

-- How the fleet was: minutes and quarters of an hour for a day, hours for eight days. Some 1,800 rows at most.
create table fleet_history (
  -- 1, 15 or 60: how long a row's time is.
  minutes        smallint    not null,
  at             timestamptz not null,
  -- When the counters were read that the row has; within its time.
  looked_at      timestamptz not null,
  -- Counters, which only grow unless the store is restored. Objects, but for refused: requests.
  accepted       bigint      not null,
  refused        bigint      not null,
  dead_letters   bigint      not null,
  applied        bigint[]    not null,
  -- By lane, as the counter above. Of more than a minute, the highest; null: the queue did not say.
  depth          integer[],
  oldest_seconds real[],
  -- Workers that were heard; of more than a minute, the fewest.
  workers        integer     not null,
  -- How long the stores took to answer; null: there is none, or it did not. The longest.
  postgres_ms    real        not null,
  redis_ms       real,
  primary key (minutes, at)
);
