/** A role that an invitation can give in a workspace: its permissions, and one line about them for the form. */
interface AccountRole {
  text: string;
  permissions: readonly string[];
}

const viewer = [
  ...['basic_access', 'view_user_profile', 'view_event_user_log', 'view_usage_data', 'view_api_keys'],
  ...['view_segments', 'view_preference_centers'],
] as const;

/** Ready-made roles. An account gets a copy of the permissions, so a later change of a role does not change accounts. */
export const accountRoles = {
  viewer: {
    text: 'Viewer: sees users with masked values, requests, segments, limits and API keys',
    permissions: viewer,
  },
  support: {
    text: 'Support: also sees values, and changes and deletes users and dead letters',
    permissions: [...viewer, 'view_pii', 'edit_user_data', 'manage_subscription_groups'],
  },
  administrator: {
    text: 'Administrator: may do everything in the workspace',
    permissions: ['admin'],
  },
} satisfies Record<string, AccountRole>;

export type AccountRoleName = keyof typeof accountRoles;

export const accountRoleNames = Object.keys(accountRoles) as AccountRoleName[];
