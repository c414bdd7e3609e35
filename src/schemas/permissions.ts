/** Permissions of API keys in groups, with the names that clients know and a description of each. */
const groups = [
  {
    title: 'Write users',
    permissions: {
      'users.track': 'Record attributes, events and purchases',
      'users.track.bulk': 'Record attributes, events and purchases in large requests',
      'users.track.sync': 'Record one object and wait for its effect, only with VENDOR_RULES=current',
      'users.delete': 'Delete users and all their data',
      'users.alias.new': 'Add aliases, and create users that only have an alias',
      'users.alias.update': 'Rename aliases',
      'users.identify': 'Give an external id to users without one',
      'users.merge': 'Merge two users',
      'users.external_ids.rename': 'Rename external ids',
      'users.external_ids.remove': 'Remove former external ids',
    },
  },
  {
    title: 'Export users',
    permissions: {
      'users.export.ids': 'Read users by their identifiers',
      'users.export.segment': 'Export all users of a segment as files',
      'users.export.global_control_group': 'No effect: no endpoint needs it',
    },
  },
  {
    title: 'Email',
    permissions: {
      'email.unsubscribe': 'List unsubscribed addresses',
      'email.status': 'Set the subscription state of addresses',
      'email.hard_bounces': 'List addresses that hard bounced',
      'email.bounce.remove': 'Remove hard bounces',
      'email.spam.remove': 'Remove spam marks',
      'email.blacklist': 'Unsubscribe addresses and mark them as hard bounces',
    },
  },
  {
    title: 'Subscription groups and SMS',
    permissions: {
      'subscription.status.set': 'Set the states of users in groups',
      'subscription.status.get': 'Read the states of users in a group',
      'subscription.groups.get': 'List the groups of a user',
      'sms.invalid_phone_numbers': 'List invalid phone numbers',
      'sms.invalid_phone_numbers.remove': 'Remove phone numbers from the list of invalid numbers',
    },
  },
  {
    title: 'Preference centers',
    permissions: {
      'preference_center.list': 'List preference centers',
      'preference_center.get': 'Read a preference center',
      'preference_center.update': 'Create and change preference centers',
      'preference_center.user.get': 'Create a link with which a user changes their states',
    },
  },
  {
    title: 'Warehouse syncs',
    permissions: {
      'cdi.integration_list': 'List integrations',
      'cdi.integration_job_status': 'List the syncs of an integration',
      'cdi.integration_sync': 'Start a sync',
    },
  },
  {
    title: 'Read totals and definitions',
    permissions: {
      'events.list': 'List the names of events',
      'events.get': 'List events with their state',
      'events.data_series': 'Count an event by day or hour',
      'custom_attributes.get': 'List attributes with their types',
      'purchases.product_list': 'List the ids of products',
      'purchases.quantity_series': 'Count items bought by day or hour',
      'purchases.revenue_series': 'Sum revenue by day or hour',
      'segments.list': 'List segments',
      'segments.details': 'Read the filter of a segment',
      'campaigns.list': 'Test a connection; always an empty list',
      'canvas.list': 'Test a connection; always an empty list',
      'feed.list': 'Test a connection; always an empty list',
    },
  },
] as const;

type NamesOf<Group> = Group extends { permissions: infer Lines } ? keyof Lines : never;

export type Permission = NamesOf<(typeof groups)[number]>;

/** A named group of permissions of API keys. `permissions` maps each to its description. */
export interface PermissionGroup {
  title: string;
  permissions: Partial<Record<Permission, string>>;
}

export const permissionGroups: readonly PermissionGroup[] = groups;

/** All permissions of API keys. */
export const permissions = groups.flatMap((group) => Object.keys(group.permissions)) as Permission[];

const of = (...titles: (typeof groups)[number]['title'][]): Permission[] =>
  groups
    .filter(({ title }) => titles.includes(title))
    .flatMap((group) => Object.keys(group.permissions) as Permission[]);

/** Sets of permissions for common clients, by name. `line` says for which client. */
export const permissionPresets = {
  server: {
    line: 'a backend that writes users, reads single users, and sets their states',
    permissions: [
      ...of('Write users', 'Email', 'Subscription groups and SMS'),
      ...(['users.export.ids', 'preference_center.list', 'preference_center.user.get'] as const),
    ],
  },
  'read-only': {
    line: 'reads single users, states, totals and definitions, without changes',
    permissions: [
      ...of('Read totals and definitions'),
      ...(['users.export.ids', 'subscription.status.get', 'subscription.groups.get'] as const),
      ...(['email.unsubscribe', 'email.hard_bounces', 'sms.invalid_phone_numbers'] as const),
      ...(['preference_center.list', 'preference_center.get'] as const),
      ...(['cdi.integration_list', 'cdi.integration_job_status'] as const),
    ],
  },
  import: {
    line: 'loads users, their history and their states from another system',
    permissions: [
      ...(['users.track', 'users.track.bulk', 'users.alias.new', 'users.identify'] as const),
      ...(['subscription.status.set', 'email.status'] as const),
    ],
  },
} satisfies Record<string, { line: string; permissions: readonly Permission[] }>;

export type PermissionPreset = keyof typeof permissionPresets;

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
