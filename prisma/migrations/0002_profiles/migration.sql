-- Who a user is: profiles, their aliases, push tokens and subscription states.
-- `workspace_id` leads every key, so that the tables can be distributed or partitioned by it.
-- fillfactor 70 leaves room in each page for the next version of a row: updates stay HOT.

create table profiles (
  workspace_id                   uuid        not null,
  -- UUIDv7 whose random part has 48 bits, so that it is also the 24 hex digits of the service id.
  id                             uuid        not null,
  external_id                    text,
  email                          text,
  -- "+" and digits; a number that is no valid one is kept, but never identifies anyone.
  phone                          text,
  phone_valid                    boolean,
  first_name                     text,
  last_name                      text,
  gender                         text,
  dob                            text,
  home_city                      text,
  country                        text,
  language                       text,
  time_zone                      text,
  image_url                      text,
  latitude                       double precision,
  longitude                      double precision,
  date_of_first_session          timestamptz,
  date_of_last_session           timestamptz,
  marked_email_as_spam_at        timestamptz,
  email_open_tracking_disabled   boolean,
  email_click_tracking_disabled  boolean,
  facebook                       jsonb,
  twitter                        jsonb,
  -- The state of a profile that has no email address; with one, the address holds the state.
  email_subscribe                text,
  push_subscribe                 text,
  custom_attributes              jsonb       not null default '{}',
  created_at                     timestamptz not null,
  updated_at                     timestamptz not null,
  primary key (workspace_id, id)
) with (fillfactor = 70);
-- lz4 where the server was built with it; the embedded Postgres was not, and keeps pglz.
do $$ begin
  alter table profiles alter column custom_attributes set compression lz4;
exception when feature_not_supported then null;
end $$;
create unique index profiles_external_id on profiles (workspace_id, external_id) where external_id is not null;
create index profiles_email on profiles (workspace_id, email) where email is not null;
create index profiles_phone on profiles (workspace_id, phone) where phone is not null and phone_valid;

create table user_aliases (
  workspace_id  uuid        not null,
  alias_label   text        not null,
  alias_name    text        not null,
  profile_id    uuid        not null,
  created_at    timestamptz not null,
  primary key (workspace_id, alias_label, alias_name)
);
-- One name per label and user.
create unique index user_aliases_profile on user_aliases (workspace_id, profile_id, alias_label);

create table push_tokens (
  workspace_id  uuid        not null,
  app_id        text        not null,
  token         text        not null,
  device_id     text        not null,
  profile_id    uuid        not null,
  created_at    timestamptz not null,
  primary key (workspace_id, app_id, token)
);
create index push_tokens_profile on push_tokens (workspace_id, profile_id);
create index push_tokens_device on push_tokens (workspace_id, device_id);

-- The global email state belongs to the address: everyone who shares it shares the state,
-- and an address that no profile has yet can have one.
create table email_addresses (
  workspace_id     uuid        not null,
  email            text        not null,
  state            text        not null check (state in ('subscribed', 'unsubscribed', 'opted_in')),
  hard_bounced_at  timestamptz,
  changed_at       timestamptz not null,
  primary key (workspace_id, email)
) with (fillfactor = 70);

-- A group state belongs to the address it is about: an email group to an email address, an SMS or
-- WhatsApp group to a phone number, and either to the profile while that has no such address.
create table subscription_states (
  workspace_id           uuid        not null,
  subject_kind           text        not null check (subject_kind in ('email', 'phone', 'profile')),
  subject                text        not null,
  subscription_group_id  uuid        not null,
  state                  text        not null check (state in ('subscribed', 'unsubscribed')),
  changed_at             timestamptz not null,
  primary key (workspace_id, subject_kind, subject, subscription_group_id)
) with (fillfactor = 70);
