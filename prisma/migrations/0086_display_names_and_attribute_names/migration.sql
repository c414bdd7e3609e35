-- What an identity provider shows an account as, and the roles that it knows. They are stored and returned; a role grants
-- nothing.
alter table accounts
  add column display_name text,
  add column roles jsonb not null default '[]';

-- Names of custom attributes that users of a workspace were given, with the types of their values. `types` is a sum: 1
-- string, 2 number, 4 boolean, 8 date, 16 array, 32 object, 64 array of objects. A workspace has at most about 10,000 rows.
create table custom_attribute_names (
  workspace_id uuid not null,
  name text not null,
  types smallint not null,
  first_seen_at timestamptz not null,
  primary key (workspace_id, name)
);
