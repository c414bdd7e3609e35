-- Ids do not get smaller by compression: to try it costs each row of the log, and each reader of it.
alter table stream_log alter column profile_ids set storage external, alter column ids set storage external;
