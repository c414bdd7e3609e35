-- Months of workspaces with which the retention has failed: each is tried again by itself, ever more seldom.
create table retention_failures (
  workspace_id  uuid        not null,
  -- The first day of the month.
  month         date        not null,
  kind          text        not null check (kind in ('events', 'purchases')),
  -- `archive`: it was to go; `erase`: deleted users were to be erased from its files.
  task          text        not null check (task in ('archive', 'erase')),
  -- Vain tries in a row; the first and the last of them.
  failures      integer     not null,
  since         timestamptz not null default now(),
  failed_at     timestamptz not null default now(),
  -- No run by schedule tries it before that.
  next_at       timestamptz not null,
  reason        text        not null,
  primary key (workspace_id, month, kind, task)
);

-- When the retention last came to its end, single months that failed aside.
create table retention_runs (
  one          boolean     primary key default true check (one),
  finished_at  timestamptz not null default now()
);
insert into retention_runs default values;
