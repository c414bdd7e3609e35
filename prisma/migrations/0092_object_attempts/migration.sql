-- Attempts at envelopes and at single objects of them, which workers begin and end after a process ended in a lane.
-- The table is small, so that its check takes no time. Processes of the release before write the other kinds.
alter table job_attempts
  drop constraint job_attempts_kind_check,
  add constraint job_attempts_kind_check check (kind in (
    'sync run', 'segment export', 'export callback', 'stream delivery', 'retention', 'envelope', 'object'
  ));
