-- Where a file of the archive ends, in the order of the primary keys of events and purchases: behind it a run goes on. Files
-- of earlier releases have none: those go on behind the greatest id.
alter table archive_files add column last_profile_id uuid, add column last_id uuid;
