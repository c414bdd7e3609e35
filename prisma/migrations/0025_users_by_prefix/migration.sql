-- The console looks users up by the beginning of their external id, and reads what one user did page by page.

-- By bytes, whatever the locale of the database: what begins alike stands together. An index of its own: another collation of
-- the column would change what prepared statements of processes that run return, and they would fail. It begins with the
-- workspace in another form: with workspace_id itself, a plan that is made before the tables are counted would walk the whole
-- workspace in it to find one external id.
create index profiles_external_id_bytes on profiles (uuid_send(workspace_id), external_id collate "C")
  where external_id is not null;

-- What a user did, in the order in which it was accepted: an id begins with its time. One index instead of two; that no id is
-- applied twice to a user still holds, and that no envelope is applied twice is the ledger's to hold. While it is built
-- nobody reads or writes these tables: what comes meanwhile waits in the queue.
alter table events drop constraint events_pkey, add primary key (workspace_id, profile_id, id);
alter table purchases drop constraint purchases_pkey, add primary key (workspace_id, profile_id, id);
drop index events_profile;
drop index purchases_profile;
