-- What a user did: events and purchases, append-only and partitioned by month, and beside them the
-- sums per profile that merge, segmentation and read-back need instead of scans.
--
-- Partitions are ranges of the id: a UUIDv7 starts with its creation time in milliseconds, so a month
-- is a range of ids, the primary key stays (workspace_id, id), and no client-given time decides
-- where a row lives.

create table events (
  workspace_id  uuid        not null,
  id            uuid        not null,
  profile_id    uuid        not null,
  name          text        not null,
  "time"        timestamptz not null,
  app_id        text,
  properties    jsonb,
  primary key (workspace_id, id)
) partition by range (id);
create table events_default partition of events default;

create table purchases (
  workspace_id  uuid        not null,
  id            uuid        not null,
  profile_id    uuid        not null,
  product_id    text        not null,
  currency      text        not null,
  price         numeric     not null,
  quantity      integer     not null,
  "time"        timestamptz not null,
  app_id        text,
  properties    jsonb,
  primary key (workspace_id, id)
) partition by range (id);
create table purchases_default partition of purchases default;

-- `updated_at` says when the profile last received such an event, by the service's clock: it tells which
-- of several profiles on one email address was updated last, without a write to the profile per event.
create table event_summaries (
  workspace_id  uuid        not null,
  profile_id    uuid        not null,
  name          text        not null,
  first         timestamptz not null,
  last          timestamptz not null,
  count         bigint      not null,
  updated_at    timestamptz not null,
  primary key (workspace_id, profile_id, name)
) with (fillfactor = 70);

-- Amounts of different currencies are never added up: the currency is part of the key.
create table purchase_summaries (
  workspace_id  uuid        not null,
  profile_id    uuid        not null,
  product_id    text        not null,
  currency      text        not null,
  first         timestamptz not null,
  last          timestamptz not null,
  count         bigint      not null,
  revenue       numeric     not null,
  updated_at    timestamptz not null,
  primary key (workspace_id, profile_id, product_id, currency)
) with (fillfactor = 70);

-- The smallest UUIDv7 of an instant: its milliseconds, version 7 and zeros.
create function uuid_v7_floor(instant timestamptz) returns uuid
language sql immutable strict parallel safe as $$
  select (lpad(to_hex(floor(extract(epoch from instant) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;

-- Makes the partitions of the month of `start` and of the `months` that follow it. Safe to repeat and to
-- race: an advisory lock lets one caller in at a time.
create function ensure_month_partitions(start timestamptz, months integer) returns void
language plpgsql as $$
declare
  month_start timestamptz;
  kind        text;
begin
  perform pg_advisory_xact_lock(hashtext('penstock.ensure_month_partitions'));
  for step in 0..months loop
    month_start := date_trunc('month', start, 'UTC') + make_interval(months => step);
    foreach kind in array array['events', 'purchases'] loop
      execute format(
        'create table if not exists %I partition of %I for values from (%L) to (%L)',
        kind || '_' || to_char(month_start at time zone 'UTC', 'YYYY_MM'), kind,
        uuid_v7_floor(month_start), uuid_v7_floor(month_start + interval '1 month'));
    end loop;
  end loop;
end
$$;

select ensure_month_partitions(now(), 2);
