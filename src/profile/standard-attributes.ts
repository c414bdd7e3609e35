import { type AttributeRule, standardOf } from './attribute-rule.ts';
import type { AttributesDelta } from './attributes-delta.ts';
import { isLongerThan, MAX_CHARACTERS } from './characters.ts';
import { normalizeCountry } from './country.ts';
import { normalizeEmail } from './email.ts';
import type { Json } from './json.ts';
import { normalizeLanguage } from './language.ts';
import { normalizePhone } from './phone.ts';
import { isRecord } from './record.ts';
import { facebook, twitter } from './social-accounts.ts';
import { parseTime, toIso } from './time.ts';
import { normalizeTimeZone } from './time-zone.ts';

/** Addresses of images carry signatures and sizes; 2,048 characters is what browsers agree on. */
const MAX_URL = 2048;

/** The code, in any case, or the word. */
const GENDERS: ReadonlyMap<string, string> = new Map([
  ...Array.from('MFONPmfonp', (code): [string, string] => [code, code.toUpperCase()]),
  ['male', 'M'],
  ['female', 'F'],
]);

const CALENDAR_DATE = /^\d{4}-\d\d-\d\d$/;

/** The rules of the attributes that are columns of `profiles`, by their name on the wire. */
export const STANDARD_ATTRIBUTES: [name: string, rule: AttributeRule][] = [
  ['email', email],
  ['phone', phone],
  ['first_name', text('first_name', MAX_CHARACTERS)],
  ['last_name', text('last_name', MAX_CHARACTERS)],
  ['home_city', text('home_city', MAX_CHARACTERS)],
  ['image_url', text('image_url', MAX_URL)],
  ['gender', gender],
  ['dob', dob],
  ['country', country],
  ['language', known('language', normalizeLanguage)],
  ['time_zone', known('time_zone', normalizeTimeZone)],
  ['current_location', currentLocation],
  ['date_of_first_session', pastTime('date_of_first_session')],
  ['date_of_last_session', pastTime('date_of_last_session')],
  ['marked_email_as_spam_at', pastTime('marked_email_as_spam_at')],
  ['email_open_tracking_disabled', flag('email_open_tracking_disabled')],
  ['email_click_tracking_disabled', flag('email_click_tracking_disabled')],
  ['facebook', facebook],
  ['twitter', twitter],
];

/** An empty text is no address, as where one identifies: it changes nothing. */
function email(delta: AttributesDelta, value: Json): string | undefined {
  if (value === '') return undefined;
  const address = typeof value === 'string' ? normalizeEmail(value) : value;
  if (typeof address !== 'string' && address !== null) {
    return "The value provided for the 'email' field is not a valid email.";
  }
  standardOf(delta).email = address;
  return undefined;
}

/** A number that cannot exist is kept and marked; a text without digits is no number, an empty one is none. */
function phone(delta: AttributesDelta, value: Json): string | undefined {
  if (value === '') return undefined;
  const standard = standardOf(delta);
  if (value === null) {
    standard.phone = null;
    standard.phone_valid = null;
    return undefined;
  }
  const digits = Number.isSafeInteger(value) ? String(value) : value;
  const number =
    typeof digits === 'string' && digits.length <= MAX_CHARACTERS ? normalizePhone(digits) : undefined;
  if (!number) return "'phone' is not valid: it must be a phone number in E.164 format";
  standard.phone = number.phone;
  standard.phone_valid = number.valid;
  return undefined;
}

function text(name: 'first_name' | 'last_name' | 'home_city' | 'image_url', max: number): AttributeRule {
  const error = `'${name}' is not valid: it must be a string of at most ${max} characters`;
  return function ruleOfText(delta, value) {
    if (value !== null && (typeof value !== 'string' || isLongerThan(value, max))) return error;
    standardOf(delta)[name] = value;
    return undefined;
  };
}

function gender(delta: AttributesDelta, value: Json): string | undefined {
  const code = typeof value === 'string' ? GENDERS.get(value) : value;
  if (typeof code !== 'string' && code !== null) {
    return "'gender' is not valid: it must be 'M', 'F', 'O', 'N', 'P' or null";
  }
  standardOf(delta).gender = code;
  return undefined;
}

function dob(delta: AttributesDelta, value: Json): string | undefined {
  if (value !== null) {
    const real = typeof value === 'string' && CALENDAR_DATE.test(value) && parseTime(value) !== undefined;
    if (!real) return "'dob' is not valid: it must be a date as YYYY-MM-DD";
  }
  standardOf(delta).dob = value as string | null;
  return undefined;
}

/** A country that nobody knows is null, as the specification of the attribute says. */
function country(delta: AttributesDelta, value: Json): string | undefined {
  standardOf(delta).country = typeof value === 'string' ? normalizeCountry(value) : null;
  return undefined;
}

/** A value that means nothing is not stored, and the stored one stays. */
function known(
  name: 'language' | 'time_zone',
  normalize: (text: string) => string | undefined,
): AttributeRule {
  return function ruleOfKnown(delta, value) {
    const stored = typeof value === 'string' ? normalize(value) : value;
    if (typeof stored === 'string' || stored === null) standardOf(delta)[name] = stored;
    return undefined;
  };
}

function currentLocation(delta: AttributesDelta, value: Json): string | undefined {
  const standard = standardOf(delta);
  if (value === null) {
    standard.latitude = null;
    standard.longitude = null;
    return undefined;
  }
  if (!isRecord(value) || !isWithin(value.latitude, 90) || !isWithin(value.longitude, 180)) {
    return "'current_location' is not valid: it needs a 'latitude' of -90 to 90 and a 'longitude' of -180 to 180";
  }
  standard.latitude = value.latitude;
  standard.longitude = value.longitude;
  return undefined;
}

function isWithin(value: Json | undefined, limit: number): value is number {
  return typeof value === 'number' && value >= -limit && value <= limit;
}

/** What has happened lies in the past: a time in the future becomes now, as it does for an event. */
function pastTime(
  name: 'date_of_first_session' | 'date_of_last_session' | 'marked_email_as_spam_at',
): AttributeRule {
  const error = `'${name}' is not valid: it must be a time in ISO 8601`;
  return function ruleOfPastTime(delta, value, now) {
    if (value === null) {
      standardOf(delta)[name] = null;
      return undefined;
    }
    const time = typeof value === 'string' ? parseTime(value) : undefined;
    if (time === undefined) return error;
    standardOf(delta)[name] = toIso(Math.min(time, now));
    return undefined;
  };
}

function flag(name: 'email_open_tracking_disabled' | 'email_click_tracking_disabled'): AttributeRule {
  const error = `'${name}' is not valid: it must be a boolean`;
  return function ruleOfFlag(delta, value) {
    if (typeof value !== 'boolean' && value !== null) return error;
    standardOf(delta)[name] = value;
    return undefined;
  };
}
