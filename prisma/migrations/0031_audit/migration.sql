-- Who did what, when and from where. A row is appended in the transaction of what it tells, and names by id what may be
-- gone by then: nothing refers to other tables.
create table audit (
  -- A UUIDv7, which begins with the time: rows are read and forgotten in its order.
  id            uuid        primary key,
  at            timestamptz not null default now(),
  -- Of all zeros: it is about the installation, and no company's.
  company_id    uuid        not null,
  workspace_id  uuid,
  -- account, operator (BOARD_USER, or whoever has the command line), scim_token, or nobody.
  actor_kind    text        not null,
  actor_id      uuid,
  -- As it was then.
  actor_name    text        not null,
  -- console, command_line, scim or dashboard.
  via           text        not null,
  address       text,
  action        text        not null,
  subject_kind  text        not null,
  subject_id    text        not null,
  detail        jsonb       not null default '{}'
);
create index audit_company on audit (company_id, id);
create index audit_action on audit (company_id, action, id);
create index audit_actor on audit (company_id, actor_name, id);
create index audit_subject on audit (subject_id, id);
