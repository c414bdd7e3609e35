-- Rows that were synced, though something in them was cut or left out, stand beside those that failed: the reason says what.
alter table sync_row_errors add column synced boolean not null default false;
