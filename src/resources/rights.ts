/**
 * Rights in the console, with the workspace permissions of SCIM that grant them. One permission is enough. The
 * workspace permission `admin` grants all rights in its workspace. Company administrators have all rights in every
 * workspace of the company.
 */
export const rights = {
  users: ['view_user_profile'],
  pii: ['view_pii'],
  export: ['export_user_data'],
  change: ['edit_user_data', 'import_update_user_data'],
  delivery: ['dev_console', 'view_event_user_log'],
  usage: ['view_usage_data', 'view_api_usage_dashboard', 'view_api_limits'],
  keys: ['view_api_keys', 'edit_api_keys'],
  edit_keys: ['edit_api_keys'],
  groups: ['manage_subscription_groups'],
  segments: ['view_segments', 'edit_segments', 'archive_segments'],
  edit_segments: ['edit_segments'],
  archive_segments: ['archive_segments', 'edit_segments'],
  centers: ['view_preference_centers', 'edit_preference_centers'],
  edit_centers: ['edit_preference_centers'],
  syncs: ['edit_cloud_data_ingestion', 'manage_external_integrations'],
} as const;

export type Right = keyof typeof rights;

/** Description of each right. `export` and `change` need other rights as well: see docs/permissions.md. */
export const rightMeanings: Record<Right, string> = {
  users: 'Find users and view them',
  pii: 'See names, addresses and values of attributes and properties. Without it, they are masked',
  export: 'Download the data of users, if the account may view their personal data',
  change: 'Change and delete users, if the account may view them; replay and discard dead letters',
  delivery: 'Follow requests and view dead letters',
  usage: 'View limits and usage',
  keys: 'View API keys and their requests',
  edit_keys: 'Create and revoke API keys',
  groups: 'View, create and archive subscription groups',
  segments: 'View segments, and count their users if the account may view users',
  edit_segments: 'Create and change segments',
  archive_segments: 'Archive segments',
  centers: 'View preference centers and their preview',
  edit_centers: 'Create and change preference centers',
  syncs: 'View, create, test, change, run, pause and cancel warehouse syncs; view, pause and resume streams',
};

/**
 * Requirement for a page. A right must be held in one workspace. `anyone` needs a session, `company` needs a company
 * administrator, and `operator` needs BOARD_USER.
 */
export type PagePermit = Right | 'anyone' | 'company' | 'operator';

/**
 * Requirement for an action. Rights apply in the resource's workspace, and all rights of a list are needed. The command
 * line has every permit.
 */
export type Permit = PagePermit | readonly Right[];

export const isRight = (permit: Permit): permit is Right =>
  typeof permit === 'string' && Object.hasOwn(rights, permit);
