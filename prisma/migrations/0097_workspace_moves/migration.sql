-- The latest move of a workspace to another shard: {"id", "to", "startedAt", "seenAt", "hindrance", "endedAt",
-- "failure"}. The process that moves the workspace renews "seenAt". Null if the workspace was never moved.
alter table workspaces add column shard_move jsonb;
