const everything = [
  ...['users', 'requests', 'dead-letters', 'refused-objects', 'syncs', 'groups', 'preference-centers'],
  ...['workspaces', 'limits', 'keys', 'imports'],
  ...['segments', 'exports', 'streams'],
  ...['accounts', 'teams', 'permission-sets', 'audit'],
];

/** Roles with their SCIM permissions, and the first path segments that they open. */
export const openingRoles: [role: string, company: string[], permissions: string[], opens: string[]][] = [
  ['looks at users', [], ['view_user_profile'], ['users']],
  ['follows requests', [], ['dev_console'], ['requests', 'dead-letters', 'refused-objects']],
  ['looks at keys', [], ['view_api_keys'], ['keys']],
  ['administers the company', ['admin'], [], everything],
];
