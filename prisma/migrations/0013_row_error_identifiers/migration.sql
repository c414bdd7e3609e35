-- Whom a row that failed names, as dead_letters.identifiers: a user who is deleted takes it along.
alter table sync_row_errors add column identifiers text[] not null default '{}';
create index sync_row_errors_identifiers on sync_row_errors using gin (identifiers) where identifiers <> '{}';
