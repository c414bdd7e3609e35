-- Dead letters that do not wait any more are also listed by kind. Only those are in it: what fails writes nothing here.
-- beforehand: create index concurrently dead_letters_closed_kind on dead_letters (workspace_id, state, left(kind, 60), id) where state in ('replaying', 'discarded')
create index if not exists dead_letters_closed_kind on dead_letters (workspace_id, state, left(kind, 60), id)
  where state in ('replaying', 'discarded');
