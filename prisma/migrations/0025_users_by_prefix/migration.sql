-- The console looks users up by the beginning of their external id, and reads what one user did page by page.

-- By bytes, whatever the locale of the database: what begins alike stands together. An index of its own: another collation of
-- the column would change what prepared statements of processes that run return, and they would fail. It begins with the
-- workspace in another form: with workspace_id itself, a plan that is made before the tables are counted would walk the whole
-- workspace in it to find one external id.
create index profiles_external_id_bytes on profiles (uuid_send(workspace_id), external_id collate "C")
  where external_id is not null;

-- In the order in which it was accepted: an id begins with its time. Takes the place of the index without the id.
create index events_of_profile on events (workspace_id, profile_id, id);
create index purchases_of_profile on purchases (workspace_id, profile_id, id);
drop index events_profile;
drop index purchases_profile;
