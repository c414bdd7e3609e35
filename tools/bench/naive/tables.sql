-- Tables of the naive pipeline, in a separate database.

create table profiles (
  id          bigserial   primary key,
  user_id     text        not null unique,
  attributes  jsonb       not null default '{}',
  -- Number of applied attribute objects, which is counted afterwards.
  updates     integer     not null default 0,
  updated_at  timestamptz not null default now()
);

create table events (
  id          bigserial   primary key,
  profile_id  bigint      not null references profiles (id),
  name        text        not null,
  "time"      timestamptz not null,
  properties  jsonb
);
create index events_profile on events (profile_id);

create table purchases (
  id          bigserial   primary key,
  profile_id  bigint      not null references profiles (id),
  product_id  text        not null,
  currency    text        not null,
  price       numeric     not null,
  quantity    integer     not null,
  "time"      timestamptz not null,
  properties  jsonb
);
create index purchases_profile on purchases (profile_id);
