-- Who has a team or a permission set is found by what `app_groups` contains: neither is deleted while an account has it.
create index accounts_app_groups on accounts using gin (app_groups jsonb_path_ops);
