-- The refusal of writes that a process reports in its heartbeat: {"reason", "since"}. Null while its writes are accepted.
alter table processes add column refusal jsonb;
