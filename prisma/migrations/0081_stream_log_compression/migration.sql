-- A row of the log has the changed attributes of a whole transaction: to pack them takes pglz three times as long as lz4.
-- lz4 where the server was built with it; the embedded Postgres was not, and keeps pglz, as does a log that is distributed.
do $$ begin
  alter table stream_log alter column details set compression lz4;
exception when feature_not_supported then null;
end $$;
