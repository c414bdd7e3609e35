-- The latest changes of a user's attributes, for the timeline of the console: names and times, without values. It is a column
-- of the profile and no table, because a row with an index costs several times as much as a longer profile.
alter table profiles add column attribute_changes text;
-- As the other columns have since 0015. Changes nothing where Citus distributes the table, because it rejects the setting.
select keep_lean_statistics('profiles');
