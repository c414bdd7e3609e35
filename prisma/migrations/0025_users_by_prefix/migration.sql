-- The console looks users up by the beginning of their external id, and reads what one user did page by page.

-- By bytes, whatever the locale of the database: what begins alike stands together. Equality stays what it was.
alter table profiles alter column external_id type text collate "C";

-- In the order in which it was accepted: an id begins with its time. Takes the place of the index without the id.
create index events_of_profile on events (workspace_id, profile_id, id);
create index purchases_of_profile on purchases (workspace_id, profile_id, id);
drop index events_profile;
drop index purchases_profile;
