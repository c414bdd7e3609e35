/**
 * Permissions of API keys, with the names that clients know. A permission may be granted before its endpoint
 * exists.
 */
export const permissions = [
  'users.track',
  'users.track.bulk',
  'users.track.sync',
  'users.delete',
  'users.alias.new',
  'users.alias.update',
  'users.identify',
  'users.merge',
  'users.external_ids.rename',
  'users.external_ids.remove',
  'users.export.ids',
  'users.export.segment',
  'users.export.global_control_group',
  'email.unsubscribe',
  'email.status',
  'email.hard_bounces',
  'email.bounce.remove',
  'email.spam.remove',
  'email.blacklist',
  'subscription.status.set',
  'subscription.status.get',
  'subscription.groups.get',
  'sms.invalid_phone_numbers',
  'sms.invalid_phone_numbers.remove',
  'preference_center.list',
  'preference_center.get',
  'preference_center.update',
  'preference_center.user.get',
  'cdi.integration_list',
  'cdi.integration_job_status',
  'cdi.integration_sync',
  'events.list',
  'events.get',
  'events.data_series',
  'custom_attributes.get',
  'purchases.product_list',
  'purchases.quantity_series',
  'purchases.revenue_series',
  'segments.list',
  'segments.details',
  'campaigns.list',
  'canvas.list',
  'feed.list',
] as const;

export type Permission = (typeof permissions)[number];

/** Departments and permissions of console accounts, from the lists of the protocol. */

export const departments = ['agency', 'bi', 'c_suite', 'engineering', 'finance', 'marketing', 'pm'] as const;

export const companyPermissions = ['admin', 'manage_company_settings', 'add_remove_app_groups'] as const;

/** Permissions that exist for teams and for workspaces. */
const shared = [
  'admin',
  'basic_access',
  'approve_deny_campaigns',
  'approve_deny_canvases',
  'send_campaigns_canvases',
  'publish_cards',
  'edit_segments',
  'export_user_data',
  'view_user_profile',
  'manage_dashboard_users',
  'manage_media_library',
  // Granular permissions.
  ...verbs(['view', 'edit', 'archive'], 'campaigns', 'canvases', 'feature_flags', 'segments'),
  ...verbs(['view', 'edit', 'archive'], 'iam_templates', 'email_templates', 'webhook_templates'),
  ...verbs(['view', 'edit', 'archive'], 'locations', 'placements'),
  ...verbs(['view', 'edit'], 'frequency_caps', 'message_prioritization', 'global_control_group'),
  ...verbs(['view', 'edit'], 'link_templates', 'preference_centers'),
  ...verbs(['view', 'edit', 'export'], 'promotion_codes'),
  'view_content_blocks',
  'view_banner_templates',
  'view_media_library_assets',
  'view_multi_language_settings',
  'use_operator',
  'view_decisioning_studio_agents',
  'view_decisioning_studio_conversion_event',
  'edit_reports',
  'launch_campaigns',
  'launch_canvases',
  'edit_dashboard_users',
] as const;

export const workspacePermissions: readonly string[] = [
  ...new Set<string>([
    ...shared,
    'view_pii',
    'view_usage_data',
    'import_update_user_data',
    'view_billing_details',
    'dev_console',
    'launch_content_blocks',
    'manage_external_integrations',
    'manage_apps',
    'manage_teams',
    'manage_events_attributes_purchases',
    'manage_tags',
    'manage_email_settings',
    'manage_subscription_groups',
    'manage_approval_settings',
    'manage_catalogs_dashboard_permission',
    // Granular permissions.
    'edit_content_blocks',
    'archive_content_blocks',
    'edit_media_library_assets',
    'delete_media_library_assets',
    'view_decisioning_studio_audience',
    'view_decisioning_studio_guardrails',
    'view_import_users',
    'import_users',
    'edit_user_data',
    'view_user_merge_records',
    'merge_duplicate_users',
    ...verbs(['view', 'edit'], 'api_keys', 'api_usage_alerts', 'sdk_debugger', 'app_settings'),
    ...verbs(['view', 'edit'], 'push_settings', 'email_settings'),
    ...verbs(['view', 'edit', 'delete'], 'internal_user_groups', 'tags'),
    'view_message_activity_log',
    'view_event_user_log',
    'view_api_identifiers',
    'view_api_usage_dashboard',
    'view_api_limits',
    'edit_cloud_data_ingestion',
    ...verbs(['view', 'edit', 'archive'], 'teams'),
    ...verbs(['view', 'edit', 'blocklist', 'delete', 'export'], 'custom_attributes', 'custom_events'),
    'edit_custom_event_property_segmentation',
    ...verbs(['view', 'edit', 'blocklist'], 'products'),
    'edit_purchase_property_segmentation',
    ...verbs(['view', 'edit', 'export', 'delete'], 'catalogs'),
    'view_whatsapp_settings',
    'edit_technology_partners',
  ]),
];

export const teamPermissions: readonly string[] = [
  ...new Set<string>([...shared, 'view_reports', 'create_reports']),
];

function verbs(names: string[], ...things: string[]): string[] {
  return things.flatMap((thing) => names.map((name) => `${name}_${thing}`));
}
