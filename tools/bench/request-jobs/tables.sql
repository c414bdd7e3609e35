-- Tables of the pipeline with a job per request, in a separate database. The pipeline with few rows uses the first three.

create table profiles (
  user_id     text        primary key,
  attributes  jsonb       not null default '{}',
  -- Number of applied attribute objects, which is counted afterwards.
  updates     integer     not null default 0,
  updated_at  timestamptz not null default now()
);

create table events (
  user_id     text        not null,
  id          uuid        not null default gen_random_uuid(),
  name        text        not null,
  "time"      timestamptz not null,
  app_id      text,
  properties  jsonb,
  primary key (user_id, id)
);

create table purchases (
  user_id     text        not null,
  id          uuid        not null default gen_random_uuid(),
  product_id  text        not null,
  currency    text        not null,
  price       numeric     not null,
  quantity    integer     not null,
  "time"      timestamptz not null,
  properties  jsonb,
  primary key (user_id, id)
);

create table requests (
  id          uuid        primary key,
  applied_at  timestamptz not null default now()
);

create table event_summaries (
  user_id     text        not null,
  name        text        not null,
  first       timestamptz not null,
  last        timestamptz not null,
  count       bigint      not null,
  primary key (user_id, name)
);

create table purchase_summaries (
  user_id     text        not null,
  product_id  text        not null,
  currency    text        not null,
  first       timestamptz not null,
  last        timestamptz not null,
  count       bigint      not null,
  revenue     numeric     not null,
  primary key (user_id, product_id, currency)
);

create table hourly_counts (
  kind        text        not null,
  name        text        not null,
  app_id      text        not null,
  hour        timestamptz not null,
  currency    text        not null,
  count       bigint      not null,
  revenue     numeric     not null default 0,
  primary key (kind, name, app_id, hour, currency)
);
