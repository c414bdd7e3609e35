-- With several lanes nothing orders an object that names a user by email with one that names the same user by external
-- id. How often that happens is counted, so that whoever needs that order finds out.
alter table lane_totals add column named_elsewhere bigint not null default 0;
