-- Workers share the lanes out: each says in its heartbeat which it has open, and since when, as [{"lane", "since"}]. Null:
-- no worker, or one of a release that does not say so.
alter table processes add column held jsonb;
