-- The last refused objects of a user, for the timeline of the console. The name is a hash of an identifier in the object, so
-- that a delete of the user finds the rows, and no row contains an identifier. A row has one day, so that old days are
-- deleted as a whole.
create table refused_of_users (
  workspace_id  uuid   not null,
  name          bytea  not null,
  -- In UTC.
  day           date   not null,
  -- The last 20 of the day as [{"requestId", "operation", "inputArray", "index", "reason", "field"}], newest first.
  objects       jsonb  not null,
  primary key (workspace_id, name, day)
);
create index refused_of_users_day on refused_of_users (day);
