-- Envelopes that are applied in parts, one transaction each: other workspaces of their lanes have their turn between
-- two. The ledger knows an envelope when its last part is in; until then a row here says which of its objects are left.
create table cut_envelopes (
  envelope_id  uuid         primary key,
  -- Places in the envelope, ascending.
  left_places  integer[]    not null,
  cut_at       timestamptz  not null default now()
);

-- A worker of an earlier release, while it is being replaced, would claim such an envelope and apply all of it once more.
-- It is told that somebody else has the lock, tries again, and leaves it to those that say `penstock.parts`. After the
-- insert: a claim that waited for another transaction sees then what that one has left.
create function keep_cut_envelopes() returns trigger language plpgsql as $$
begin
  if coalesce(current_setting('penstock.parts', true), '') <> 'on'
    and exists (select from cut_envelopes where cut_envelopes.envelope_id = new.envelope_id)
  then
    raise exception 'envelope % is applied in parts, by workers of a later release', new.envelope_id
      using errcode = 'lock_not_available';
  end if;
  return null;
end $$;
create trigger keep_cut_envelopes after insert on ledger for each row execute function keep_cut_envelopes();
