-- The history of an address goes with the last user who has it. It may be long, and is erased in slices; until then a
-- row here says which part of it does not count any more, should somebody else get the address meanwhile.
create table dropped_histories (
  workspace_id  uuid    not null,
  subject_kind  text    not null,
  -- The address.
  subject       text    not null,
  -- Rows of the history up to this id are gone for whoever reads.
  up_to         bigint  not null,
  primary key (workspace_id, subject_kind, subject)
);
