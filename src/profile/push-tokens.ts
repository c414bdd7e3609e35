import { createHash } from 'node:crypto';
import {
  type AttributeRule,
  type AttributesDelta,
  type Finding,
  leftOut,
  standardOf,
} from './attribute-rule.ts';
import { exceedsJsonBytes, type Json } from './json.ts';
import { MAX_OBJECT_BYTES } from './nested.ts';
import { areRecords, isRecord } from './values.ts';

/** In bytes. App and token are one key of the store, and Postgres has 2,704 bytes for an index entry. */
const MAX_APP_ID = 255;
const MAX_TOKEN = 2048;

/** In bytes, as device ids are made by the SDKs. */
const MIN_DEVICE_ID = 8;
const MAX_DEVICE_ID = 255;

/** Tokens in one object: an import makes as many users. */
const MAX_TOKENS = 100;

/** Hexadecimal digits of a device id made here: 128 bits. */
const DERIVED_DEVICE_ID = 32;

/** The attributes that say which devices reach a user, by their name on the wire. */
export const PUSH_ATTRIBUTES: [name: string, rule: AttributeRule][] = [['push_tokens', pushTokens]];

/** Tokens are added, never removed: null is none to add. */
function pushTokens(delta: AttributesDelta, value: Json): Finding | undefined {
  if (value === null) return undefined;
  const list = Array.isArray(value) ? value : [value];
  if (!areRecords(list)) return { error: "'push_tokens' is not valid: it must be an array of objects" };
  if (list.length > MAX_TOKENS)
    return { error: `'push_tokens' is not valid: it must have at most ${MAX_TOKENS} elements` };
  const tokens: NonNullable<AttributesDelta['push_tokens']> = [];
  for (const { app_id, token, device_id } of list) {
    if (!hasBytes(app_id, 1, MAX_APP_ID)) {
      return refused(`'push_tokens.app_id' is not valid: it must be a string of 1 to ${MAX_APP_ID} bytes`);
    }
    if (!hasBytes(token, 1, MAX_TOKEN)) {
      return refused(`'push_tokens.token' is not valid: it must be a string of 1 to ${MAX_TOKEN} bytes`);
    }
    const device = device_id ?? derivedDeviceId(app_id, token);
    if (!hasBytes(device, MIN_DEVICE_ID, MAX_DEVICE_ID)) {
      return refused(
        `'push_tokens.device_id' is not valid: it must be a string of ${MIN_DEVICE_ID} to ${MAX_DEVICE_ID} bytes`,
      );
    }
    tokens.push({ app_id, token, device_id: device });
  }
  if (tokens.length > 0) delta.push_tokens = tokens;
  return undefined;
}

/** The same token is the same device, however often it is sent. */
function derivedDeviceId(appId: string, token: string): string {
  // The length keeps apart pairs that read the same when joined.
  const hash = createHash('sha256').update(`${appId.length}:${appId}${token}`);
  return hash.digest('hex').slice(0, DERIVED_DEVICE_ID);
}

function refused(error: string): Finding {
  return { error };
}

function hasBytes(value: Json | undefined, min: number, max: number): value is string {
  if (typeof value !== 'string') return false;
  const bytes = Buffer.byteLength(value);
  return bytes >= min && bytes <= max;
}

interface Member {
  is(value: Json): boolean;
  rule: string;
}

const id: Member = {
  // Ids outgrew the integers of JSON readers, so both forms are in use.
  is: (value) => typeof value === 'string' || Number.isInteger(value),
  rule: 'a string or an integer',
};
const integer: Member = { is: Number.isInteger, rule: 'an integer' };
const string: Member = { is: (value) => typeof value === 'string', rule: 'a string' };
const strings: Member = {
  is: (value) => Array.isArray(value) && value.every((element) => typeof element === 'string'),
  rule: 'an array of strings',
};

/** What is known of a user's accounts elsewhere; members without a rule are kept as sent. */
export const facebook: AttributeRule = account('facebook', { id, likes: strings, num_friends: integer });
export const twitter: AttributeRule = account('twitter', {
  id,
  screen_name: string,
  followers_count: integer,
  friends_count: integer,
  statuses_count: integer,
});

function account(name: 'facebook' | 'twitter', members: Record<string, Member>): AttributeRule {
  const rules = Object.entries(members);
  return function ruleOfAccount(delta: AttributesDelta, value: Json) {
    if (value !== null) {
      if (!isRecord(value)) return leftOut(`'${name}' is not valid: it must be an object`);
      for (const [member, { is, rule }] of rules) {
        const given = value[member] ?? null;
        if (given !== null && !is(given)) {
          return leftOut(`'${name}' is not valid: '${member}' must be ${rule}`);
        }
      }
      if (exceedsJsonBytes(value, MAX_OBJECT_BYTES)) {
        return leftOut(`'${name}' is not valid: it must be at most ${MAX_OBJECT_BYTES} bytes of JSON`);
      }
    }
    standardOf(delta)[name] = value;
    return undefined;
  };
}
