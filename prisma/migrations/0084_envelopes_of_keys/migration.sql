-- The envelopes of a queued request that came with an Idempotency-Key, as [[id, lane, objects], …]. After a loss of the
-- queue they tell whether the request has taken effect. Null for requests of earlier releases and for direct operations.
alter table idempotency_keys add column envelopes jsonb;
