-- Attempts at envelopes and at single objects of them: workers begin and end them after a process ended in a lane. The
-- release before has no such table, so that its processes write no row that the new check refuses.
-- contract 1.0.0: the check of kinds, unused since 0.1.0
alter table job_attempts
  drop constraint job_attempts_kind_check,
  add constraint job_attempts_kind_check check (kind in (
    'sync run', 'segment export', 'export callback', 'stream delivery', 'retention', 'envelope', 'object'
  ));
