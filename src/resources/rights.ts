/**
 * Rights in the console, with the workspace permissions of SCIM that grant them. One permission is enough. The
 * workspace permission `admin` grants all rights in its workspace. Company administrators have all rights in every
 * workspace of the company.
 */
export const rights = {
  /** View users. */
  users: ['view_user_profile'],
  /** View personal data: names, addresses, values of attributes and properties. Masked without this right. */
  pii: ['view_pii'],
  /** Download a user's data. */
  export: ['export_user_data'],
  /**
   * Change and delete users, with the right `users`, and `pii` to set or remove an attribute. Replay and discard dead letters, with
   * the right `delivery`, and `pii` to correct one. Erase deleted users from the log of streams, with the right `syncs`.
   */
  change: ['edit_user_data', 'import_update_user_data'],
  /** View requests and dead letters. */
  delivery: ['dev_console', 'view_event_user_log'],
  /** View limits and usage of a workspace. */
  usage: ['view_usage_data', 'view_api_usage_dashboard', 'view_api_limits'],
  /** View API keys and their requests. Secrets are not stored. */
  keys: ['view_api_keys', 'edit_api_keys'],
  /** Create and revoke API keys. */
  edit_keys: ['edit_api_keys'],
  /** View, create and archive subscription groups. */
  groups: ['manage_subscription_groups'],
  /** View segments, and count their users if the `users` right is given as well. */
  segments: ['view_segments', 'edit_segments', 'archive_segments'],
  /** Create and change segments. */
  edit_segments: ['edit_segments'],
  /** Archive segments. */
  archive_segments: ['archive_segments', 'edit_segments'],
  /** View and preview preference centers. */
  centers: ['view_preference_centers', 'edit_preference_centers'],
  /** View, create, test, change, delete, start, pause and cancel warehouse syncs; view, pause and resume streams. */
  syncs: ['edit_cloud_data_ingestion', 'manage_external_integrations'],
} as const;

export type Right = keyof typeof rights;

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
