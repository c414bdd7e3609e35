import { expect, test } from 'vitest';
import type { ApiError } from '../../src/errors.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';

const track = usersTrack('braze_id', { rules: rulesOf.current });
const group = '018f0000-0000-7000-8000-000000000000';
const caller = {
  workspaceId: group,
  requestId: group,
  hasGroup: () => false,
  channelOf: () => undefined,
  isBlocked: (id: string) => id === 'blocked',
  now: Date.now(),
};

function codeOf(object: Record<string, Json>): string {
  try {
    track.plan(caller, { attributes: [object] });
  } catch (error) {
    return (error as ApiError).rejected[0]!.type;
  }
  return 'accepted';
}

const tokens = (more: Record<string, Json>) => [{ app_id: 'app', token: 'token', ...more }];
const groups = (more: Record<string, Json>) => [
  { subscription_group_id: group, subscription_state: 'subscribed', ...more },
];

test.each<[string, Record<string, Json>]>([
  ['BAD_DEVICE_ID', { push_tokens: tokens({ device_id: 'short' }) }],
  ['BAD_EMAIL_SUBSCRIPTION_STATE', { email_subscribe: 'yes' }],
  ['BAD_LOCATION_UPDATE', { current_location: 'here' }],
  ['BAD_PUSH_SUBSCRIPTION_STATE', { push_subscribe: 'yes' }],
  ['BAD_PUSH_TOKEN_APP_ID', { push_tokens: tokens({ app_id: 1 }) }],
  ['BAD_PUSH_TOKEN_IMPORT', { push_token_import: true, push_tokens: tokens({}) }],
  ['BAD_PUSH_TOKEN_IMPORT', { push_token_import: true, external_id: null }],
  ['BAD_PUSH_TOKEN_STRING', { push_tokens: tokens({ token: 1 }) }],
  ['BAD_PUSH_TOKEN_VALUE', { push_tokens: 'token' }],
  ['BAD_SUBSCRIPTION_GROUP_ARRAY', { subscription_groups: 'group' }],
  ['BAD_SUBSCRIPTION_GROUP_HASH', { subscription_groups: ['group'] }],
  ['BAD_SUBSCRIPTION_GROUP_HASH', { subscription_groups: [{ subscription_group_id: group }] }],
  ['BAD_SUBSCRIPTION_GROUP_HASH', { subscription_groups: [{ subscription_state: 'subscribed' }] }],
  ['BAD_SUBSCRIPTION_GROUP_ID', { subscription_groups: groups({}) }],
  ['BAD_SUBSCRIPTION_GROUP_ID', { subscription_groups: groups({ subscription_group_id: 'group' }) }],
  ['BAD_SUBSCRIPTION_GROUP_STATE', { subscription_groups: groups({ subscription_state: 'opted_in' }) }],
  ['BLACKLISTED_EXTERNAL_USER_ID', { external_id: 'blocked' }],
  ['EMAIL_BAD_FORMAT', { email: 'no address' }],
  ['EMAIL_BAD_FORMAT', { external_id: null, email: 'no address' }],
  ['EXTERNAL_USER_ID_TOO_LARGE', { external_id: 'x'.repeat(988) }],
  ['INVALID_ATTRIBUTE_EMAIL_SUBSCRIPTION_INFO', { email_subscription_info: {} }],
  ['accepted', { current_location: { longitude: 13, latitude: 52 } }],
])('VENDOR_RULES=current answers %s for %j', (code, object) => {
  expect(codeOf({ external_id: 'ada', ...object })).toBe(code);
});
