-- Dummy users: external ids of a workspace whose objects the edge refuses. What is stored of them stays.

-- A row whose `unblocked_at` is set refuses nothing: it remembers that a person let the id in again, so that
-- no rule blocks it a second time.
create table blocked_external_ids (
  workspace_id  uuid        not null references workspaces (id),
  external_id   text        not null,
  reason        text        not null,
  blocked_at    timestamptz not null default now(),
  unblocked_at  timestamptz,
  primary key (workspace_id, external_id)
);

-- One summary in 256, by which the profiles that have very many of them are found without a look at the rest.
-- The profile is part of the hash: without it, an event that everyone has could bring everyone's row in here.
-- All columns are those of the primary keys, so that an update of a summary stays HOT.
create index event_summaries_sample on event_summaries (workspace_id, profile_id)
  where ((uuid_hash(profile_id) # hashtext(name)) & 255) = 0;
create index purchase_summaries_sample on purchase_summaries (workspace_id, profile_id)
  where ((uuid_hash(profile_id) # hashtext(product_id)) & 255) = 0;
