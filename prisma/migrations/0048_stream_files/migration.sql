-- Streams to files: what takes effect is gathered before it is delivered, and a file that was begun is put again as it was.
alter table stream_destinations
  -- The oldest thing waits so long, unless there is enough; 0: it is delivered at once.
  add column gather_ms integer not null default 0,
  -- Where the file ends that is being put; null: none is.
  add column planned_position bigint,
  add column planned_place integer,
  -- The hour that the last file stands under.
  add column file_hour timestamptz;
