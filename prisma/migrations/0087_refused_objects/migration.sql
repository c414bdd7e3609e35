-- Objects that web refused, counted by hour and cause. A web process adds what it has collected once a second. Error texts
-- and values are not stored: texts may quote a value, and nobody could erase it when its user is deleted.
create table refused_objects (
  workspace_id       uuid         not null,
  -- The full hour in UTC in which the requests arrived.
  hour               timestamptz  not null,
  -- One of the names in src/operations/rejection-reasons.ts.
  reason             text         not null,
  -- Path of the field; empty where the error names none.
  field              text         not null,
  -- Id of the endpoint, and name of the request's array. Both are empty, and the key is nil, in the one group per reason
  -- that takes what has no room in a group of its own.
  operation          text         not null,
  input_array        text         not null,
  api_key_id         uuid         not null,
  objects            bigint       not null,
  last_request_id    uuid         not null,
  -- The request that the sample is from.
  sample_request_id  uuid         not null,
  -- A refused object with a mask in place of each value.
  sample             jsonb,
  primary key (workspace_id, reason, operation, input_array, field, api_key_id, hour)
) with (fillfactor = 70);
create index refused_objects_workspace_hour on refused_objects (workspace_id, hour);
-- For upkeep and for the count of the whole installation: the id begins with a time in the row's hour, and never changes.
create index refused_objects_sample on refused_objects (sample_request_id);

-- Requests with refused objects, so that GET /requests/{request_id} can list these: at most 1,000 of each workspace, hour
-- and web process, and those from which samples are.
create table refused_requests (
  workspace_id  uuid     not null,
  -- A UUIDv7, which begins with the time of the request.
  request_id    uuid     not null,
  api_key_id    uuid     not null,
  operation     text     not null,
  rejected      integer  not null,
  -- The first 300 of them, as [{"inputArray", "index", "reason", "field"}].
  objects       jsonb    not null,
  primary key (workspace_id, request_id)
);
create index refused_requests_id on refused_requests (request_id);
