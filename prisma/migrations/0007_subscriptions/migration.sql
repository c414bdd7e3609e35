-- Subscriptions: what became of each state, when, and by which request.

-- One row a change, written behind it in the same transaction, while the row of the state is locked: by id, the last
-- row of a subject and subscription is its state as it is.
create table subscription_history (
  workspace_id  uuid        not null,
  subject_kind  text        not null check (subject_kind in ('email', 'phone', 'profile')),
  -- The address, or the profile's id.
  subject       text        not null,
  -- The id of a subscription group; empty: the global email state.
  subscription  text        not null,
  id            bigint      generated always as identity,
  -- Null: none.
  from_state    text,
  to_state      text,
  changed_at    timestamptz not null,
  request_id    text        not null,
  primary key (workspace_id, subject_kind, subject, subscription, id)
);

-- States that are older than their history.
insert into subscription_history (workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)
select workspace_id, 'email', email, '', state, changed_at, 'unknown' from email_addresses
union all
select workspace_id, subject_kind, subject, subscription_group_id::text, state, changed_at, 'unknown'
from subscription_states
union all
select workspace_id, 'profile', id::text, '', email_subscribe, updated_at, 'unknown'
from profiles where email_subscribe is not null;

-- An address that is only known to bounce has no state: it still takes the first one that is said of it.
alter table email_addresses alter column state drop not null;

-- Unsubscribed and bounced addresses by when they became so.
create index email_addresses_unsubscribed on email_addresses (workspace_id, changed_at, email)
  where state = 'unsubscribed';
create index email_addresses_hard_bounced on email_addresses (workspace_id, hard_bounced_at, email)
  where hard_bounced_at is not null;

alter table usage add column subscriptions bigint not null default 0;
