import { columnNames } from '../profile/standard-columns.ts';
/**
 * The rate-limit buckets: the requests that one workspace may make in a window. Operations that name the
 * same bucket share it. A row of `rate_limits` overrides a bucket for one workspace.
 */
export const buckets = {
  'users.track': { requests: 50_000, windowSeconds: 60 },
  'users.track.bulk': { requests: 50, windowSeconds: 1 },
  'users.track.sync': { requests: 500, windowSeconds: 60 },
  /** Shared by users.delete, users.alias.new, users.alias.update, users.identify and users.merge. */
  'users.identity': { requests: 20_000, windowSeconds: 60 },
  /** Shared by users.external_ids.rename and users.external_ids.remove. */
  'users.external_ids': { requests: 1000, windowSeconds: 60 },
  'users.export.ids': { requests: 2500, windowSeconds: 60 },
  /** Shared by /subscription/status/set and /v2/subscription/status/set. */
  'subscription.status.set': { requests: 5000, windowSeconds: 60 },
  requests: { requests: 2500, windowSeconds: 60 },
  /** Shared by the lists of events, products and custom attributes, and by the series of purchases. */
  'events.list': { requests: 1000, windowSeconds: 3600 },
  /** Shared by all operations without their own bucket. */
  default: { requests: 250_000, windowSeconds: 3600 },
  /** Shared by every verb of SCIM. */
  scim: { requests: 5000, windowSeconds: 86_400 },
  'cdi.integration_list': { requests: 50, windowSeconds: 60 },
  'cdi.integration_job_status': { requests: 100, windowSeconds: 60 },
  'cdi.integration_sync': { requests: 20, windowSeconds: 60 },
  /** Shared by listing, viewing and creating the link of a preference center. */
  'preference_center.read': { requests: 1000, windowSeconds: 60 },
  /** Shared by creating and updating a preference center. */
  'preference_center.write': { requests: 10, windowSeconds: 60 },
} as const satisfies Record<string, { requests: number; windowSeconds: number }>;

export type BucketName = keyof typeof buckets;

/**
 * Names that `SERVICE_ID_FIELD` and its plural must not have: every other member of a request or response,
 * every attribute with its own rule, and `constructor`, which every object has. The settings test compares
 * this list with the schemas of all operations and the rules of all attributes.
 */
export const reservedNames: readonly string[] = [
  ...columnNames(),
  ...`
  accepted_at analytics_tracking_enabled alias_label alias_name alias_updates aliases_processed
  aliases_to_identify app array_length campaigns canvases cards data_type included_in_analytics_report tag_names
  app_group_id app_id apps attributes attributes_processed bio callback_endpoint channel color
  confirmation_page_html constructor contact_emails count created_at currency current_external_id current_location
  cursor custom_attributes custom_attributes_to_export custom_events data description deleted device_id devices
  email_address email_addresses email_hard_bounced_at email_opted_in_at email_subscribe email_subscription_info
  email_unsubscribed_at emails emails_processed emails_to_identify end_date ending_at errors event events
  events_processed external_id external_id_renames external_ids field fields_to_export first first_used
  hard_bounced_at href id identifier_to_keep identifier_to_merge index input_array integration_id integration_name
  integration_status integration_type invalid_detected_at invalid_user_ids job_status last last_coordinates
  last_job_start_time last_job_status last_timestamp_synced last_updated_at last_used length limit liquid_tag
  merge_behavior merge_updates message name new_alias_name new_external_id next_scheduled_run object_prefix
  objects offset old_alias_name options output_format page pending phone_numbers phone_numbers_processed
  phone_numbers_to_identify phones preference_center_api_id preference_center_options preference_center_page_html
  preference_center_title preference_center_url preference_centers price prioritization product product_id
  products properties purchase_quantity purchase_events purchases purchases_processed push_subscribe
  push_token_import push_tokens quantity random_bucket reason redirect_page_html rejected rejected_count rel
  removal_errors removed_ids rename_errors request_id results revenue rows_failed_with_errors rows_synced
  segment_id segments sessions sizes sms sort_direction start_date state status subscription_group_id
  subscription_groups subscription_state sync_finish_time sync_start_time tags teams text_description time token
  total_count total_revenue type unit unknown unsubscribed_at updated_at url use_double_opt_in_logic user_alias
  user_aliases user_id users warehouse_type warnings
`
    .trim()
    .split(/\s+/),
];
