-- Attempts at jobs of sync: a row is written when a process begins a job and removed when that process ends it. A row
-- that stays belongs to a process that ended in the middle of the job. Processes of the release before write none.
create table job_attempts (
  kind        text        not null check (kind in ('sync run', 'segment export', 'export callback', 'stream delivery', 'retention')),
  job_id      uuid        not null,
  -- As in `processes`.
  process_id  uuid        not null,
  started_at  timestamptz not null default now(),
  primary key (kind, job_id, process_id)
) with (fillfactor = 50);
