-- Addresses of an account as its identity provider knows them, answered as they came: a provider reads back what it
-- sent. Nothing else is made of them. Null: none were given, and the account has that of its name.
alter table accounts add column emails jsonb;

-- How long the lists of an account are, as text: a page of accounts is bounded by it, and to make the text of each list
-- for that would take longer than a search may.
alter table accounts add column list_bytes integer not null
  generated always as (octet_length(app_groups::text) + coalesce(octet_length(emails::text), 0)) stored;
