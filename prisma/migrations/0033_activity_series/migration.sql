-- What a workspace did, hour by hour: how often each event happened, how many of each product were bought, and for how
-- much. Charts and lists of names read this instead of the events. Kept when users are deleted: it names nobody.

create table activity_series (
  workspace_id  uuid        not null,
  -- event: of one event name; product: of one product; purchases: of all products together, its name is empty.
  kind          text        not null,
  name          text        not null,
  -- Empty: of all apps together, and of what named none. What names an app is counted for the app as well, unless its id is
  -- longer than a key may be (255 bytes).
  app_id        text        not null,
  hour          timestamptz not null,
  -- Empty for events. Amounts of different currencies are never added up.
  currency      text        not null,
  -- Part of the key, so that two lanes that are applied at the same time never wait for each other's row. What was
  -- counted later, by `penstock series recount`, has -1.
  lane          integer     not null,
  -- Events, or items bought.
  count         bigint      not null,
  revenue       numeric     not null default 0,
  primary key (workspace_id, kind, name, app_id, hour, currency, lane)
) with (fillfactor = 70);

-- What lies there already, and what older workers apply, is counted by `penstock series recount` after the upgrade.
