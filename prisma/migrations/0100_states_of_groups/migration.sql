-- The console counts the states of each subscription group, up to a limit.
-- beforehand: create index concurrently subscription_states_of_group on subscription_states (workspace_id, subscription_group_id, state)
create index if not exists subscription_states_of_group
  on subscription_states (workspace_id, subscription_group_id, state);
