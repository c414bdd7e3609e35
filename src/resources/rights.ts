/**
 * What the console asks for, by the names that SCIM gives for a workspace: one of them suffices. `admin` of a workspace
 * has all of them, and company administrators have all in every workspace of their company.
 */
export const rights = {
  /** To find users and to look at them. */
  users: ['view_user_profile'],
  /** To see who somebody is: names, addresses, values of attributes and properties. Masked otherwise. */
  pii: ['view_pii'],
  /** To take a user's data along. */
  export: ['export_user_data'],
  /** To delete users; to replay, mend and discard what could not be applied. */
  change: ['edit_user_data', 'import_update_user_data'],
  /** To follow requests and to look at dead letters. */
  delivery: ['dev_console', 'view_event_user_log'],
  /** To look at the limits of a workspace, and at what it has used. */
  usage: ['view_usage_data', 'view_api_usage_dashboard', 'view_api_limits'],
  /** To look at API keys and at what they ask for; their secrets are stored nowhere. */
  keys: ['view_api_keys', 'edit_api_keys'],
  /** To make and revoke them. */
  edit_keys: ['edit_api_keys'],
  /** To look at subscription groups. */
  groups: ['manage_subscription_groups'],
  /** To look at segments, and to count whom they mean, which takes the right to look at users as well. */
  segments: ['view_segments', 'edit_segments', 'archive_segments'],
  /** To make and change them. */
  edit_segments: ['edit_segments'],
  /** To archive them. */
  archive_segments: ['archive_segments', 'edit_segments'],
  /** To look at preference centers, and at their preview. */
  centers: ['view_preference_centers', 'edit_preference_centers'],
  /** To look at warehouse syncs, and to run, pause and cancel them; to look at streams, and to pause them. */
  syncs: ['edit_cloud_data_ingestion', 'manage_external_integrations'],
} as const;

export type Right = keyof typeof rights;

/**
 * What a person needs for a page or an action. A right: in the workspace of the thing. `anyone`: to have signed in.
 * `company`: to administer the company. `operator`: to be BOARD_USER. The command line may do everything.
 */
export type Permit = Right | 'anyone' | 'company' | 'operator';

export const isRight = (permit: Permit): permit is Right => Object.hasOwn(rights, permit);
