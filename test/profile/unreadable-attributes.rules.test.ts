import { describe, expect, test } from 'vitest';
import { normalizeAttributes } from '../../src/profile/attributes.ts';
import type { Json } from '../../src/profile/json.ts';
import { context, errorOf } from './normalized.ts';

describe('an unreadable standard attribute is dropped, and the others are stored', () => {
  const phone = "'phone' is not valid: it must be a phone number in E.164 format";
  const location =
    "'current_location' is not valid: it needs a 'latitude' of -90 to 90 and a 'longitude' of -180 to 180";
  const gender = "'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null";
  const dob = "'dob' is not valid: it must be a date as YYYY-MM-DD";
  const country = "'country' is not valid: it must be a country's ISO 3166-1 code or English name";
  const language = "'language' is not valid: it must be a language code of ISO 639-1";
  const timeZone = "'time_zone' is not valid: it must be a time zone as America/New_York";
  test.each<[string, Json, string]>([
    ['phone', 'n/a', phone],
    ['phone', true, phone],
    ['phone', 1.5, phone],
    ['phone', '1'.repeat(256), phone],
    ['phone', '+49 30 123456 ext. 7', phone],
    ['first_name', ['Ada'], "'first_name' is not valid: it must be a string of at most 255 characters"],
    ['last_name', 5, "'last_name' is not valid: it must be a string of at most 255 characters"],
    ['home_city', {}, "'home_city' is not valid: it must be a string of at most 255 characters"],
    [
      'image_url',
      'x'.repeat(2049),
      "'image_url' is not valid: it must be a string of at most 2048 characters",
    ],
    ['gender', 'x', gender],
    ['gender', 'unknown', gender],
    ['gender', 'constructor', gender],
    ['gender', 1, gender],
    ['dob', '1815-02-30', dob],
    ['dob', '1815-02-30T00:00:00Z', dob],
    ['dob', '1815-12-10T25:00:00Z', dob],
    ['dob', '1815-12-10 in London', dob],
    ['dob', '12/10/1815', dob],
    ['dob', 1815, dob],
    ['country', 'Atlantis', country],
    ['country', '', country],
    ['country', 5, country],
    ['country', ['DE'], country],
    ['language', 'xx', language],
    ['language', '', language],
    ['language', {}, language],
    ['time_zone', 'Mars/Olympus', timeZone],
    ['time_zone', 5, timeZone],
    ['current_location', { latitude: 1 }, location],
    ['current_location', { longitude: 1 }, location],
    ['current_location', { latitude: 91, longitude: 1 }, location],
    ['current_location', { latitude: 1, longitude: -180.5 }, location],
    ['current_location', { latitude: '1,5', longitude: 1 }, location],
    ['current_location', { latitude: '', longitude: 1 }, location],
    ['current_location', [1, 1], location],
    ['date_of_first_session', 'soon', "'date_of_first_session' is not valid: it must be a time in ISO 8601"],
    [
      'date_of_last_session',
      1700000000,
      "'date_of_last_session' is not valid: it must be a time in ISO 8601",
    ],
    ['marked_email_as_spam_at', {}, "'marked_email_as_spam_at' is not valid: it must be a time in ISO 8601"],
    [
      'email_open_tracking_disabled',
      'true',
      "'email_open_tracking_disabled' is not valid: it must be a boolean",
    ],
    [
      'email_click_tracking_disabled',
      1,
      "'email_click_tracking_disabled' is not valid: it must be a boolean",
    ],
    ['facebook', 'ada', "'facebook' is not valid: it must be an object"],
    ['facebook', { likes: [1] }, "'facebook' is not valid: 'likes' must be an array of strings"],
    [
      'facebook',
      { x: 'y'.repeat(102_400) },
      "'facebook' is not valid: it must be at most 102400 bytes of JSON",
    ],
    ['twitter', { followers_count: 1.5 }, "'twitter' is not valid: 'followers_count' must be an integer"],
    ['twitter', { id: true }, "'twitter' is not valid: 'id' must be a string or an integer"],
  ])('%s: %j', (name, value, warning) => {
    expect(normalizeAttributes({ plan: 'pro', [name]: value, city: 'Rome' }, context)).toEqual({
      delta: { set: { plan: 'pro', city: 'Rome' } },
      warnings: [`${warning}; it was omitted`],
    });
  });

  test('null removes the attribute without a warning', () => {
    expect(normalizeAttributes({ gender: null, dob: null, country: null }, context)).not.toHaveProperty(
      'warnings',
    );
  });
});

describe('a standard attribute whose errors the specification lists rejects the object', () => {
  const email = "The value provided for the 'email' field is not a valid email.";
  test.each<[string, Json, string]>([
    ['email', 'ada', email],
    ['email', 5, email],
    ['email', ['ada@example.com'], email],
    ['email', 'ada lovelace@example.com', email],
    ['email_subscribe', 'maybe', "'email_subscribe' must be 'subscribed', 'unsubscribed', or 'opted_in'"],
    ['push_subscribe', true, "'push_subscribe' must be 'subscribed', 'unsubscribed', or 'opted_in'"],
    ['email_subscription_info', {}, "'email_subscription_info' is not valid: it may not be set"],
    ['_merge_objects', 'true', "'_merge_objects' is not valid: it must be a boolean"],
    ['_update_existing_only', 1, "'_update_existing_only' is not valid: it must be a boolean"],
    ['push_token_import', 'x', "'push_token_import' is not valid: it must be a boolean"],
  ])('%s: %j', (name, value, error) => {
    expect(errorOf({ plan: 'pro', [name]: value })).toBe(error);
  });
});
