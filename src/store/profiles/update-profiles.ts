import type { StandardAttributes } from '../../profile/attributes-delta.ts';
import { jsonArray } from '../arrays.ts';
import type { Connection } from '../database.ts';
import {
  type CustomAttributesUpdate,
  customValues,
  mergedCustomAttributes,
} from './update-custom-attributes.ts';

export interface ProfileUpdate extends CustomAttributesUpdate {
  /** Columns to overwrite; what is not named stays. */
  columns: StandardAttributes & { push_subscribe?: string; email_subscribe?: string | null };
}

/**
 * By primary key; each profile stands once, and its row is locked already. jsonb_populate_record lays the
 * named columns over the row as it is.
 */
const statement = `
  update profiles set
    (email, phone, phone_valid, first_name, last_name, gender, dob, home_city, country, language, time_zone,
     image_url, latitude, longitude, date_of_first_session, date_of_last_session, marked_email_as_spam_at,
     email_open_tracking_disabled, email_click_tracking_disabled, facebook, twitter, email_subscribe,
     push_subscribe) = (
      select
        laid.email, laid.phone, laid.phone_valid, laid.first_name, laid.last_name, laid.gender, laid.dob,
        laid.home_city, laid.country, laid.language, laid.time_zone, laid.image_url, laid.latitude,
        laid.longitude, laid.date_of_first_session, laid.date_of_last_session, laid.marked_email_as_spam_at,
        laid.email_open_tracking_disabled, laid.email_click_tracking_disabled, laid.facebook, laid.twitter,
        laid.email_subscribe, laid.push_subscribe
      from jsonb_populate_record(profiles, changed.columns) as laid),
    custom_attributes = ${mergedCustomAttributes},
    updated_at = $6::timestamptz + changed.ordinal * interval '1 microsecond'
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[], $5::integer[], $7::jsonb[])
    as changed (workspace_id, id, set, unset, ordinal, columns)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`;

/** Changes standard attributes, and custom ones with them. */
export async function updateProfiles(tx: Connection, updates: ProfileUpdate[], now: Date): Promise<void> {
  await tx.query({
    name: 'update-profiles',
    text: statement,
    values: [...customValues(updates, now), jsonArray(updates, (update) => update.columns)],
  });
}
