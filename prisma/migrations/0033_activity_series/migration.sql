-- What a workspace did, hour by hour: how often each event happened, how many of each product were bought, and for how
-- much. Charts and lists of names read this instead of the events. Kept when users are deleted: it names nobody.

create table activity_series (
  workspace_id  uuid        not null,
  -- event: of one event name; product: of one product; purchases: of all products together, its name is empty.
  kind          text        not null,
  name          text        not null,
  -- Empty: of all apps together, and of what named none. What names an app is counted for the app as well, unless its id is
  -- longer than a key may be (255 characters).
  app_id        text        not null,
  hour          timestamptz not null,
  -- Empty for events. Amounts of different currencies are never added up.
  currency      text        not null,
  -- Part of the key, so that two lanes that are applied at the same time never wait for each other's row. What happened
  -- before there were lanes of this table has -1.
  lane          integer     not null,
  -- Events, or items bought.
  count         bigint      not null,
  revenue       numeric     not null default 0,
  primary key (workspace_id, kind, name, app_id, hour, currency, lane)
) with (fillfactor = 70);

-- Older workers that still run count nothing here; what they apply from now on is missing in the series.
insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count)
select events.workspace_id, 'event', events.name, apps.app_id, date_trunc('hour', events."time", 'UTC'), '', -1, count(*)
from events
cross join lateral (
  select '' union all select events.app_id where events.app_id <> '' and char_length(events.app_id) <= 255
) as apps (app_id)
group by 1, 2, 3, 4, 5;

insert into activity_series (workspace_id, kind, name, app_id, hour, currency, lane, count, revenue)
select purchases.workspace_id, names.kind, names.name, apps.app_id, date_trunc('hour', purchases."time", 'UTC'),
  purchases.currency, -1, sum(purchases.quantity), sum(purchases.price * purchases.quantity)
from purchases
cross join lateral (values ('product', purchases.product_id), ('purchases', '')) as names (kind, name)
cross join lateral (
  select '' union all select purchases.app_id where purchases.app_id <> '' and char_length(purchases.app_id) <= 255
) as apps (app_id)
group by 1, 2, 3, 4, 5, 6;
