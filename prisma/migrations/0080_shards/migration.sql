-- Shards: sets of lanes, a hash tag each, so that several primaries of a Redis Cluster share what waits. Each workspace has
-- one, by its number. `shard_moves` counts its moves: who knows a later number knows better where it is.
alter table workspaces
  add column shard       integer not null default 0,
  add column shard_moves integer not null default 0;

-- `installation.lanes` counts the lanes of all shards: a process of an earlier release, which knows of none, does not start.
alter table installation add column shards integer not null default 1;

-- What `installation` says of the queue of the first shard, of each further one.
create table queue_shards (
  shard          integer     primary key check (shard > 0),
  generation     integer     not null default 1,
  mark           text,
  additions      bigint      not null default 0,
  looked_at      timestamptz,
  waiting_since  timestamptz,
  drained        boolean     not null default false
) with (fillfactor = 50);

alter table queue_losses add column shard integer not null default 0;
