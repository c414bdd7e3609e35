-- Phone numbers of which somebody has said that no message reaches them.
create table invalid_phone_numbers (
  workspace_id  uuid        not null,
  -- "+" and digits, as profiles have it.
  phone         text        not null,
  reason        text        not null check (reason in ('provider_error', 'deactivated')),
  detected_at   timestamptz not null,
  primary key (workspace_id, phone)
);
create index invalid_phone_numbers_detected on invalid_phone_numbers (workspace_id, detected_at, phone);
