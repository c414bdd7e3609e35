-- Requests that are sent again, and requests that are followed.

-- What became of a request that came with an Idempotency-Key. `owner_id` is the workspace, or the company of a SCIM
-- token. `fingerprint` tells another body by. `request_id` is that of the first request: everything that it did carries
-- this id, whoever finishes it.
--
-- `staged` holds what a queued request hands to the lanes, with the answer beside it, until the lanes have it: whoever
-- comes with the key meanwhile hands over the very same. A direct request has neither until it is done. `lease_until`
-- says how long somebody is at it; null, with no answer: the operation changes nothing, and is answered anew each time.
create table idempotency_keys (
  owner_id     uuid        not null,
  operation    text        not null,
  key_hash     bytea       not null,
  fingerprint  bytea       not null,
  request_id   uuid        not null,
  created_at   timestamptz not null default now(),
  lease_until  timestamptz,
  staged       json,
  status       smallint,
  body         json,
  headers      json,
  primary key (owner_id, operation, key_hash)
);
create index idempotency_keys_created on idempotency_keys (created_at);

-- Which requests an envelope carried, in the form of src/jobs/traces.ts; null: an earlier release applied it, or it is a
-- replay. Ids do not compress, so nothing is tried.
alter table ledger add column requests bytea;
alter table ledger alter column requests set storage external;

create index dead_letters_request on dead_letters (workspace_id, request_id);
