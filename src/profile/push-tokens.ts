import { createHash } from 'node:crypto';
import type { AttributeRule } from './attribute-rule.ts';
import type { AttributesDelta } from './attributes-delta.ts';
import type { Json } from './json.ts';
import { areRecords } from './record.ts';

/** In bytes. App and token are one key of the store, and Postgres has 2,704 bytes for an index entry. */
const MAX_APP_ID = 255;
const MAX_TOKEN = 2048;

/** In bytes, as device ids are made by the SDKs. */
const MIN_DEVICE_ID = 8;
const MAX_DEVICE_ID = 255;

/** Hexadecimal digits of a device id made here: 128 bits. */
const DERIVED_DEVICE_ID = 32;

/** The attributes that say which devices reach a user, by their name on the wire. */
export const PUSH_ATTRIBUTES: [name: string, rule: AttributeRule][] = [['push_tokens', pushTokens]];

/** Tokens are added, never removed: null is none to add. */
function pushTokens(delta: AttributesDelta, value: Json): string | undefined {
  if (value === null) return undefined;
  const list = Array.isArray(value) ? value : [value];
  if (!areRecords(list)) return "'push_tokens' is not valid: it must be an array of objects";
  const tokens: NonNullable<AttributesDelta['push_tokens']> = [];
  for (const { app_id, token, device_id } of list) {
    if (!hasBytes(app_id, 1, MAX_APP_ID)) {
      return `'push_tokens.app_id' is not valid: it must be a string of 1 to ${MAX_APP_ID} bytes`;
    }
    if (!hasBytes(token, 1, MAX_TOKEN)) {
      return `'push_tokens.token' is not valid: it must be a string of 1 to ${MAX_TOKEN} bytes`;
    }
    const device = device_id ?? derivedDeviceId(app_id, token);
    if (!hasBytes(device, MIN_DEVICE_ID, MAX_DEVICE_ID)) {
      return `'push_tokens.device_id' is not valid: it must be a string of ${MIN_DEVICE_ID} to ${MAX_DEVICE_ID} bytes`;
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

function hasBytes(value: Json | undefined, min: number, max: number): value is string {
  if (typeof value !== 'string') return false;
  const bytes = Buffer.byteLength(value);
  return bytes >= min && bytes <= max;
}
