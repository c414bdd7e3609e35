-- Rate limits of long windows, where web processes count for themselves: a restart would fill each bucket again, and
-- give a limit of an hour or a day once more. With Redis nothing is written here.

-- `owner_id` is the workspace, or the company of a SCIM token. `counter` is the kind of process that counts, web or sync:
-- without Redis each counts for itself. `tokens` is what was left at the time `at`.
create table token_buckets (
  owner_id uuid             not null,
  bucket   text             not null,
  counter  text             not null,
  tokens   double precision not null,
  at       timestamptz      not null,
  primary key (owner_id, bucket, counter)
);
