import type { Json } from '../../profile/json.ts';
import type { Refusal } from '../../profile/refusal.ts';
import { asRecord } from '../../profile/values.ts';

/** Error codes that depend on the field only. */
const CODES_OF_FIELDS: Readonly<Record<string, string>> = {
  email: 'EMAIL_BAD_FORMAT',
  email_subscribe: 'BAD_EMAIL_SUBSCRIPTION_STATE',
  push_subscribe: 'BAD_PUSH_SUBSCRIPTION_STATE',
  email_subscription_info: 'INVALID_ATTRIBUTE_EMAIL_SUBSCRIPTION_INFO',
  current_location: 'BAD_LOCATION_UPDATE',
  push_token_import: 'BAD_PUSH_TOKEN_IMPORT',
  'push_tokens.app_id': 'BAD_PUSH_TOKEN_APP_ID',
  'push_tokens.token': 'BAD_PUSH_TOKEN_STRING',
  'push_tokens.device_id': 'BAD_DEVICE_ID',
};

/** Error codes that depend on the field and the reason. */
const CODES_OF_REASONS: Readonly<Record<string, string>> = {
  'external_id blocked': 'BLACKLISTED_EXTERNAL_USER_ID',
  'external_id too_large': 'EXTERNAL_USER_ID_TOO_LARGE',
  'push_tokens required': 'BAD_PUSH_TOKEN_IMPORT',
  'push_tokens wrong_type': 'BAD_PUSH_TOKEN_VALUE',
  'subscription_groups unknown_group': 'BAD_SUBSCRIPTION_GROUP_ID',
};

/**
 * Returns the error code that the vendor's page of /users/track lists for the refusal, or undefined if it lists none.
 *
 * @param object the refused object
 */
export function errorCodeOf({ field, reason }: Refusal, object: Json): string | undefined {
  const code = CODES_OF_FIELDS[field] ?? CODES_OF_REASONS[`${field} ${reason}`];
  if (code !== undefined) return code;
  const groups = asRecord(object)?.subscription_groups;
  if (field === 'subscription_groups' && reason === 'wrong_type')
    return Array.isArray(groups) ? 'BAD_SUBSCRIPTION_GROUP_HASH' : 'BAD_SUBSCRIPTION_GROUP_ARRAY';
  if (field !== 'subscription_group_id' && field !== 'subscription_state') return undefined;
  if ([groups ?? []].flat().some(lacksMember)) return 'BAD_SUBSCRIPTION_GROUP_HASH';
  return field === 'subscription_state' ? 'BAD_SUBSCRIPTION_GROUP_STATE' : 'BAD_SUBSCRIPTION_GROUP_ID';
}

function lacksMember(element: Json): boolean {
  const group = asRecord(element);
  return group?.subscription_group_id === undefined || group.subscription_state === undefined;
}
