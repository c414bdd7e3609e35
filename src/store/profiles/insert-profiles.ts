import type { StandardAttributes } from '../../profile/attributes-delta.ts';
import type { Json } from '../../profile/json.ts';
import type { Connection } from '../database.ts';

export interface NewProfile extends StandardAttributes {
  workspace_id: string;
  id: string;
  external_id: string | null;
  email_subscribe: string | null;
  push_subscribe: string | null;
  custom_attributes: Record<string, Json>;
  /** Place in the batch: orders profiles that one batch makes. */
  ordinal: number;
}

/**
 * Into profiles, which refuses a second profile for one external id (23505): another lane made it meanwhile,
 * and the batch is tried again.
 */
const statement = `
  insert into profiles (
    workspace_id, id, external_id, email, phone, phone_valid, first_name, last_name, gender, dob, home_city,
    country, language, time_zone, image_url, latitude, longitude, date_of_first_session, date_of_last_session,
    marked_email_as_spam_at, email_open_tracking_disabled, email_click_tracking_disabled, facebook, twitter,
    email_subscribe, push_subscribe, custom_attributes, created_at, updated_at)
  select
    made.workspace_id, made.id, made.external_id, made.email, made.phone, made.phone_valid, made.first_name,
    made.last_name, made.gender, made.dob, made.home_city, made.country, made.language, made.time_zone,
    made.image_url, made.latitude, made.longitude, made.date_of_first_session, made.date_of_last_session,
    made.marked_email_as_spam_at, made.email_open_tracking_disabled, made.email_click_tracking_disabled,
    made.facebook, made.twitter, made.email_subscribe, made.push_subscribe, made.custom_attributes,
    $2::timestamptz, $2::timestamptz + made.ordinal * interval '1 microsecond'
  from jsonb_to_recordset($1::jsonb) as made (
    workspace_id uuid, id uuid, external_id text, email text, phone text, phone_valid boolean, first_name text,
    last_name text, gender text, dob text, home_city text, country text, language text, time_zone text,
    image_url text, latitude double precision, longitude double precision, date_of_first_session timestamptz,
    date_of_last_session timestamptz, marked_email_as_spam_at timestamptz, email_open_tracking_disabled boolean,
    email_click_tracking_disabled boolean, facebook jsonb, twitter jsonb, email_subscribe text,
    push_subscribe text, custom_attributes jsonb, ordinal integer)`;

export async function insertProfiles(tx: Connection, profiles: NewProfile[], now: Date): Promise<void> {
  await tx.query({ name: 'insert-profiles', text: statement, values: [JSON.stringify(profiles), now] });
}
