-- Companies and who works for them: dashboard accounts, managed over SCIM, and what these may do where.
-- Small tables, read one row or one page at a time.

create table companies (
  id          uuid        primary key,
  name        text        not null unique,
  created_at  timestamptz not null default now()
);

-- Its id is a constant, so that it can be the default of the column below: a workspace whose maker names no company
-- belongs to `default`. So do all that there were before there were companies: they had one operator.
insert into companies (id, name) values ('00000000-0000-7000-8000-000000000001', 'default');

alter table workspaces
  add column company_id uuid not null default '00000000-0000-7000-8000-000000000001' references companies (id);
create index workspaces_company on workspaces (company_id);

create table teams (
  id            uuid        primary key,
  workspace_id  uuid        not null references workspaces (id),
  name          text        not null,
  created_at    timestamptz not null default now(),
  unique (workspace_id, name)
);

-- Workspace-level permissions under one name.
create table permission_sets (
  id           uuid        primary key,
  company_id   uuid        not null references companies (id),
  name         text        not null,
  permissions  text[]      not null,
  created_at   timestamptz not null default now(),
  unique (company_id, name)
);

-- As api_keys: only the SHA-256 of a random secret is kept. `origin` is what X-Request-Origin has to be.
create table scim_tokens (
  id            uuid        primary key,
  company_id    uuid        not null references companies (id),
  name          text        not null,
  identifier    text        not null,
  token_hash    bytea       not null unique,
  origin        text        not null,
  ip_allowlist  text[]      not null default '{}',
  created_at    timestamptz not null default now(),
  last_seen_at  timestamptz,
  revoked_at    timestamptz
);
create index scim_tokens_company on scim_tokens (company_id);

-- `position` is the order of lists: new accounts come last, so that pages read one after the other do not shift.
-- `email` is `user_name` in lower case. `app_groups` holds ids (workspaces, teams, permission sets); their names are
-- read when they are shown. `version` counts every change that can be seen, `session_epoch` what ends sessions.
create table accounts (
  id                     uuid        primary key,
  company_id             uuid        not null references companies (id),
  position               bigint      not null generated always as identity,
  user_name              text        not null,
  email                  text        not null,
  external_id            text,
  given_name             text        not null,
  family_name            text        not null,
  department             text        not null,
  active                 boolean     not null default true,
  company_permissions    text[]      not null default '{}',
  app_groups             jsonb       not null default '[]',
  version                integer     not null default 1,
  created_at             timestamptz not null default now(),
  modified_at            timestamptz not null default now(),
  last_sign_in_at        timestamptz,
  password_hash          text,
  invitation_hash        bytea       unique,
  invitation_expires_at  timestamptz,
  session_epoch          integer     not null default 0
);
create unique index accounts_email on accounts (company_id, email text_pattern_ops);
create unique index accounts_position on accounts (company_id, position);
create index accounts_external_id on accounts (company_id, external_id);
create index accounts_given_name on accounts (company_id, lower(given_name) text_pattern_ops);
create index accounts_family_name on accounts (company_id, lower(family_name) text_pattern_ops);
create index accounts_department on accounts (company_id, department);
-- The dashboard's way in knows no company.
create index accounts_sign_in on accounts (email);
