-- Rows of an import that was interrupted are erased some days later. Processes of the release before do not write
-- `staged_at`: the time at which the import was started counts instead.
alter table imports
  add column staged_at timestamptz,
  -- When rows were erased that the lanes may not have had: the import cannot be continued.
  add column rows_erased_at timestamptz;
