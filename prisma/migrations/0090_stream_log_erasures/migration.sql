-- Deleted users and addresses that still have details in the log of streams. A pass reads the log of a workspace once for
-- all of them. Workers of the release before add no rows: details of users whom they delete go with the log.
create table stream_erasures (
  workspace_id  uuid        not null,
  subject_kind  text        not null check (subject_kind in ('profile', 'email', 'phone')),
  -- The id of the profile, or the address.
  subject       text        not null,
  -- Addresses only: rows of the log after this id may belong to a new user of the address.
  up_to         bigint,
  -- Addresses only: `at` of the row that the deleting transaction itself writes, after `up_to`.
  dropped_at    timestamptz,
  since         timestamptz not null default now(),
  -- Whether the current pass erases it.
  in_pass       boolean     not null default false,
  primary key (workspace_id, subject_kind, subject)
);

-- A row for each workspace that has had a row above.
create table stream_erasure_passes (
  workspace_id  uuid    primary key,
  -- The pass has read the log up to this id; null: no pass is running.
  reached       bigint,
  -- The last id that the pass reads.
  up_to         bigint
);
