import { normalizeEmail, normalizePhone } from './addresses.ts';
import {
  type AttributeRule,
  type AttributesDelta,
  type Finding,
  omitted,
  type SubscriptionState,
  standardOf,
  TOO_LONG,
} from './attribute-rule.ts';
import { INVALID_EMAIL } from './identifier.ts';
import { exceedsJsonBytes, type Json } from './json.ts';
import { normalizeCountry, normalizeLanguage } from './locale.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { invalid, type Refusal, refuse } from './refusal.ts';
import type { ColumnOf } from './standard-columns.ts';
import { normalizeTimeZone, parseTime, pastIso } from './time.ts';
import { areRecords, asRecord, isLongerThan, isRecord, MAX_CHARACTERS, numberOf, uuidOf } from './values.ts';

/**
 * Maximum length of the URL of an image, which may contain a signature and sizes. 2,048 characters is the common limit
 * of browsers.
 */
const MAX_URL = 2048;

/**
 * Codes by code or word in upper case. 'unknown' is not valid: clients send null instead, which removes the stored
 * value.
 */
const GENDERS: ReadonlyMap<string, string> = new Map([
  ...Array.from('MFONP', (code): [string, string] => [code, code]),
  ['MALE', 'M'],
  ['FEMALE', 'F'],
  ['OTHER', 'O'],
  ['NOT APPLICABLE', 'N'],
  ['PREFER NOT TO SAY', 'P'],
]);
/** Length of the longest word. */
const MAX_GENDER = 17;

const CALENDAR_DATE = /^\d{4}-\d\d-\d\d$/;
const CALENDAR_TIME = /^\d{4}-\d\d-\d\d[Tt ]/;
/** Length of a calendar date. */
const DAY = 10;

interface Member {
  is(value: Json): boolean;
  rule: string;
}

const id: Member = {
  // Newer ids exceed the integers that JSON parsers read exactly, so clients send both forms.
  is: (value) => typeof value === 'string' || Number.isInteger(value),
  rule: 'a string or an integer',
};
const integer: Member = { is: Number.isInteger, rule: 'an integer' };
const string: Member = { is: (value) => typeof value === 'string', rule: 'a string' };
const strings: Member = {
  is: (value) => Array.isArray(value) && value.every((element) => typeof element === 'string'),
  rule: 'an array of strings',
};

/** Rules for accounts in social networks. Members without a rule are stored as sent. */
const facebook: AttributeRule = account('facebook', { id, likes: strings, num_friends: integer });
const twitter: AttributeRule = account('twitter', {
  id,
  screen_name: string,
  followers_count: integer,
  friends_count: integer,
  statuses_count: integer,
});

function account(name: ColumnOf<'json'>, members: Record<string, Member>): AttributeRule {
  const rules = Object.entries(members);
  return function ruleOfAccount(delta: AttributesDelta, sent: Json) {
    const value = sent === null ? null : asRecord(sent);
    if (value !== null) {
      if (!value) return omitted(`'${name}' is not valid: it must be an object`);
      for (const [member, { is, rule }] of rules) {
        const given = value[member] ?? null;
        if (given !== null && !is(given)) {
          return omitted(`'${name}' is not valid: '${member}' must be ${rule}`);
        }
      }
      if (exceedsJsonBytes(value, MAX_OBJECT_BYTES)) {
        return omitted(`'${name}' is not valid: it must be at most ${MAX_OBJECT_BYTES} bytes of JSON`);
      }
    }
    standardOf(delta)[name] = value;
    return undefined;
  };
}

/** The rules of the attributes that are columns of `profiles`, by name in the API. */
export const STANDARD_ATTRIBUTES: [name: string, rule: AttributeRule][] = [
  ['email', email],
  ['phone', phone],
  ['first_name', text('first_name', MAX_CHARACTERS)],
  ['last_name', text('last_name', MAX_CHARACTERS)],
  ['home_city', text('home_city', MAX_CHARACTERS)],
  ['image_url', text('image_url', MAX_URL)],
  ['gender', gender],
  ['dob', dob],
  ['country', normalized('country', normalizeCountry, "a country's ISO 3166-1 code or English name")],
  ['language', normalized('language', normalizeLanguage, 'a language code of ISO 639-1')],
  ['time_zone', normalized('time_zone', normalizeTimeZone, 'a time zone as America/New_York')],
  ['current_location', currentLocation],
  ['date_of_first_session', pastTime('date_of_first_session')],
  ['date_of_last_session', pastTime('date_of_last_session')],
  ['marked_email_as_spam_at', pastTime('marked_email_as_spam_at')],
  ['email_open_tracking_disabled', flag('email_open_tracking_disabled')],
  ['email_click_tracking_disabled', flag('email_click_tracking_disabled')],
  ['facebook', facebook],
  ['twitter', twitter],
];

/** Returns the rules that differ at a level of VENDOR_RULES. */
export function standardOverrides({
  unknownCountry,
  invalidLocation,
}: {
  unknownCountry: 'omit' | 'remove';
  invalidLocation: 'omit' | 'refuse';
}): [name: string, rule: AttributeRule][] {
  return [
    ...(unknownCountry === 'remove' ? [['country', countryOrNone] as [string, AttributeRule]] : []),
    ...(invalidLocation === 'refuse' ? [['current_location', wholeLocation] as [string, AttributeRule]] : []),
  ];
}

/** Sets the country. An unknown country removes the stored one. */
function countryOrNone(delta: AttributesDelta, value: Json): undefined {
  standardOf(delta).country = (typeof value === 'string' && normalizeCountry(value)) || null;
}

/** Sets the location. An invalid location refuses the object. */
function wholeLocation(delta: AttributesDelta, value: Json): Finding | undefined {
  const finding = currentLocation(delta, value);
  return finding === undefined
    ? undefined
    : invalid('current_location', "it must be an object with 'longitude' and 'latitude'");
}

/**
 * Sets the email address. An empty text changes nothing, because an identifier with an empty text counts as absent as
 * well.
 */
function email(delta: AttributesDelta, value: Json): Finding | undefined {
  if (value === '') return undefined;
  const address = typeof value === 'string' ? normalizeEmail(value) : value;
  if (typeof address !== 'string' && address !== null) {
    return INVALID_EMAIL;
  }
  standardOf(delta).email = address;
  return undefined;
}

/**
 * Sets the phone number. A number that cannot exist is stored as invalid. A text without digits is omitted with a
 * warning. An empty text changes nothing.
 */
function phone(delta: AttributesDelta, value: Json): Finding | undefined {
  if (value === '') return undefined;
  const digits = Number.isSafeInteger(value) ? String(value) : value;
  const number = typeof digits === 'string' ? normalizePhone(digits) : undefined;
  if (!number && value !== null)
    return omitted("'phone' is not valid: it must be a phone number in E.164 format");
  const standard = standardOf(delta);
  standard.phone = number?.phone ?? null;
  standard.phone_valid = number?.valid ?? null;
  return undefined;
}

function text(name: ColumnOf<'text'>, max: number): AttributeRule {
  const unreadable = omitted(`'${name}' is not valid: it must be a string of at most ${max} characters`);
  // A cut URL would point to another resource.
  const long = max === MAX_CHARACTERS ? TOO_LONG : unreadable;
  return function ruleOfText(delta, value) {
    if (value !== null && (typeof value !== 'string' || isLongerThan(value, max))) {
      return typeof value === 'string' ? long : unreadable;
    }
    standardOf(delta)[name] = value;
    return undefined;
  };
}

function gender(delta: AttributesDelta, value: Json): Finding | undefined {
  const code =
    typeof value === 'string' && value.length <= MAX_GENDER
      ? (GENDERS.get(value) ?? GENDERS.get(value.toUpperCase()))
      : undefined;
  if (code === undefined && value !== null) {
    return omitted("'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null");
  }
  standardOf(delta).gender = code ?? null;
  return undefined;
}

function dob(delta: AttributesDelta, value: Json): Finding | undefined {
  const day = typeof value === 'string' ? dayOf(value) : undefined;
  if (day === undefined && value !== null)
    return omitted("'dob' is not valid: it must be a date as YYYY-MM-DD");
  standardOf(delta).dob = day ?? null;
  return undefined;
}

/** Returns the date of a time as written. Time of day and zone are ignored, because they could change a birthday. */
function dayOf(text: string): string | undefined {
  if (!(text.length === DAY ? CALENDAR_DATE : CALENDAR_TIME).test(text) || parseTime(text) === undefined) {
    return undefined;
  }
  return text.length === DAY ? text : text.slice(0, DAY);
}

/** Creates a rule for values from a list. An unknown value is omitted, and the stored value stays. */
function normalized(
  name: ColumnOf<'text'>,
  normalize: (text: string) => string | undefined,
  rule: string,
): AttributeRule {
  const unreadable = omitted(`'${name}' is not valid: it must be ${rule}`);
  return function ruleOfKnown(delta, value) {
    const stored = typeof value === 'string' ? normalize(value) : value;
    if (typeof stored !== 'string' && stored !== null) return unreadable;
    standardOf(delta)[name] = stored;
    return undefined;
  };
}

function currentLocation(delta: AttributesDelta, value: Json): Finding | undefined {
  const latitude = isRecord(value) ? inRange(value.latitude, 90) : undefined;
  const longitude = isRecord(value) ? inRange(value.longitude, 180) : undefined;
  if (value !== null && (latitude === undefined || longitude === undefined)) {
    return omitted(
      "'current_location' is not valid: it needs a 'latitude' of -90 to 90 and a 'longitude' of -180 to 180",
    );
  }
  const standard = standardOf(delta);
  standard.latitude = latitude ?? null;
  standard.longitude = longitude ?? null;
  return undefined;
}

function inRange(value: Json | undefined, limit: number): number | undefined {
  const number = numberOf(value);
  return number !== undefined && number >= -limit && number <= limit ? number : undefined;
}

/** Creates a rule for times in the past. A time in the future is replaced by the current time, as for events. */
function pastTime(name: ColumnOf<'time'>): AttributeRule {
  const unreadable = omitted(`'${name}' is not valid: it must be a time in ISO 8601`);
  return function ruleOfPastTime(delta, value, now) {
    const time = typeof value === 'string' ? pastIso(value, now) : undefined;
    if (time === undefined && value !== null) return unreadable;
    standardOf(delta)[name] = time ?? null;
    return undefined;
  };
}

function flag(name: ColumnOf<'boolean'>): AttributeRule {
  const unreadable = omitted(`'${name}' is not valid: it must be a boolean`);
  return function ruleOfFlag(delta, value) {
    if (typeof value !== 'boolean' && value !== null) return unreadable;
    standardOf(delta)[name] = value;
    return undefined;
  };
}

/** The rules of the subscription attributes, by name in the API. */
export const SUBSCRIPTION_ATTRIBUTES: [name: string, rule: AttributeRule][] = [
  ['email_subscribe', subscriptionState('email_subscribe')],
  ['push_subscribe', subscriptionState('push_subscribe')],
  ['subscription_groups', subscriptionGroups],
  ['email_subscription_info', () => invalid('email_subscription_info', 'it may not be set')],
];

/** Refuses a subscription attribute with an invalid state. */
export function invalidState(name: string): Refusal {
  return refuse('invalid', name, `'${name}' must be 'subscribed', 'unsubscribed', or 'opted_in'`);
}

/**
 * Sets a state. Null changes nothing, because clients send it for a missing value, which must not resubscribe an
 * unsubscribed user.
 */
function subscriptionState(name: 'email_subscribe' | 'push_subscribe'): AttributeRule {
  const finding = invalidState(name);
  return function ruleOfState(delta, value) {
    if (value === null) return undefined;
    if (value !== 'subscribed' && value !== 'unsubscribed' && value !== 'opted_in') return finding;
    delta[name] = value satisfies SubscriptionState;
    return undefined;
  };
}

/**
 * Reads group states. Ids are UUIDs and are converted to lower case. The caller checks that the groups exist. Null sets
 * no state.
 */
function subscriptionGroups(delta: AttributesDelta, value: Json): Finding | undefined {
  if (value === null) return undefined;
  const list = Array.isArray(value) ? value : [value];
  if (!areRecords(list))
    return invalid('subscription_groups', 'it must be an array of objects', 'wrong_type');
  const groups: NonNullable<AttributesDelta['subscription_groups']> = [];
  for (const { subscription_group_id: id, subscription_state: state } of list) {
    const group = typeof id === 'string' && uuidOf(id);
    if (!group) {
      return invalid('subscription_group_id', 'it must be the UUID of a subscription group');
    }
    if (state !== 'subscribed' && state !== 'unsubscribed') {
      return refuse(
        'invalid',
        'subscription_state',
        "'subscription_state' must be 'subscribed' or 'unsubscribed'",
      );
    }
    groups.push({ subscription_group_id: group, subscription_state: state });
  }
  if (groups.length > 0) delta.subscription_groups = groups;
  return undefined;
}
