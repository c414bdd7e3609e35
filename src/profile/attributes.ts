import { createHash } from 'node:crypto';
import {
  type AttributeRule,
  type AttributesDelta,
  cutWarning,
  type Finding,
  type LongStrings,
  TOO_LONG,
  withWarning,
} from './attribute-rule.ts';
import {
  type AddCustom,
  addCustom,
  COUNTED,
  customBytes,
  MAX_CUSTOM_BYTES,
  mergeCustom,
} from './custom-values.ts';
import type { Json } from './json.ts';
import { invalid, type Refusal, type RejectionReason, refuse, required } from './refusal.ts';
import { STANDARD_ATTRIBUTES, SUBSCRIPTION_ATTRIBUTES, standardOverrides } from './standard-attributes.ts';
import { areRecords, cutText, cutTexts, isLongerThan, MAX_CHARACTERS, quoted } from './values.ts';

/** The attributes that say which devices reach a user, by their name on the wire. */
const PUSH_ATTRIBUTES: [name: string, rule: AttributeRule][] = [['push_tokens', pushTokens]];

/** Members that address the object or say how to apply it, and `bio`, which clients still send. */
const NO_DATA = ['external_id', 'user_alias', 'app_id', 'bio'];

export type AttributeRules = ReadonlyMap<string, AttributeRule>;

/** Every name that is not a custom attribute. */
const RULES: AttributeRules = new Map([
  ...STANDARD_ATTRIBUTES,
  ...SUBSCRIPTION_ATTRIBUTES,
  ...PUSH_ATTRIBUTES,
  ...NO_DATA.map((name): [string, AttributeRule] => [name, () => undefined]),
  ...['_merge_objects', '_update_existing_only', 'push_token_import'].map((name): [string, AttributeRule] => [
    name,
    switchRule(name),
  ]),
]);

/** Returns the rules of the attributes as a level of VENDOR_RULES has them. */
export function attributeRulesOf(vendorRules: Parameters<typeof standardOverrides>[0]): AttributeRules {
  const overrides = standardOverrides(vendorRules);
  return overrides.length === 0 ? RULES : new Map([...RULES, ...overrides]);
}

/** Members of an attribute object that are not custom attributes. */
export const NAMED_ATTRIBUTES: readonly string[] = [...RULES.keys()];

/** What the attributes of an object are judged by. */
export interface AttributeContext {
  /** Wire name of the service id, which is an address and no attribute. */
  serviceIdField: string;
  /** Epoch milliseconds of acceptance: session dates past it become it. */
  now: number;
  longStrings: LongStrings;
  /** Absent: the rules of the specification. */
  attributeRules?: AttributeRules;
}

/**
 * Turns an attribute object into what it changes on a profile. `email` and `phone` are written to the
 * profile, also where they address it; null removes an attribute. The delta is empty when nothing changes.
 *
 * @param object a parsed JSON object
 * @returns the delta, and what was cut or left out if anything was; or the error of the first attribute that breaks
 * a rule
 */
export function normalizeAttributes(
  object: Record<string, Json>,
  { serviceIdField, now, longStrings, attributeRules = RULES }: AttributeContext,
): { delta: AttributesDelta; warnings?: readonly string[] } | Refusal {
  const delta: AttributesDelta = {};
  const add = object._merge_objects === true ? mergeCustom : addCustom;
  let warnings: readonly string[] | undefined;
  for (const name in object) {
    if (name === serviceIdField) continue;
    const value = object[name]!;
    const rule = attributeRules.get(name);
    const finding = rule ? rule(delta, value, now) : add(delta, name, value);
    if (finding === undefined) continue;
    const said =
      finding === TOO_LONG ? addLong(delta, { name, value, rule }, { now, add, longStrings }) : finding;
    if ('error' in said) return said;
    warnings = withWarning(warnings, said.warning);
  }
  const bytes = customBytes(delta.set ?? {});
  if (bytes > MAX_CUSTOM_BYTES)
    return refuse('too_large', '', `the custom attributes are too large: ${bytes} bytes, ${COUNTED}`);
  const judged = warnings ? { delta, warnings } : { delta };
  if (object.push_token_import !== true) return judged;
  if (!delta.push_tokens) return required('push_tokens');
  // Each token makes a user with all of the attributes.
  if (bytes * delta.push_tokens.length > MAX_CUSTOM_BYTES)
    return invalid(
      'push_tokens',
      `the custom attributes of all tokens together are too large: ${bytes * delta.push_tokens.length} bytes, ${COUNTED}`,
      'too_large',
    );
  return judged;
}

interface Attribute {
  name: string;
  value: Json;
  /** Absent: it is a custom attribute. */
  rule: AttributeRule | undefined;
}

interface HowToAdd {
  now: number;
  /** Adds a custom attribute. */
  add: AddCustom;
  longStrings: LongStrings;
}

/** Adds an attribute of which 255 characters of each text are left, or refuses it. */
function addLong(
  delta: AttributesDelta,
  { name, value, rule }: Attribute,
  { now, add, longStrings }: HowToAdd,
): Finding {
  if (longStrings === 'refuse') return refusedLong(name, rule);
  const cutName = cutText(name);
  const cutValue = cutTexts(value);
  const finding = rule ? rule(delta, cutValue, now) : add(delta, cutName, cutValue);
  if (finding !== undefined && finding !== TOO_LONG) return finding;
  return { warning: cutWarning(`'${quoted(name)}'`, { name: cutName !== name, value: cutValue !== value }) };
}

function refusedLong(name: string, rule: AttributeRule | undefined): Finding {
  const what = rule ? 'it must be a string of' : 'a string must be';
  const broken = isLongerThan(name, MAX_CHARACTERS) ? 'the name of an attribute must be' : what;
  return invalid(quoted(name), `${broken} at most ${MAX_CHARACTERS} characters`, 'too_large');
}

/** A switch is read where it matters; here it is only no attribute. */
function switchRule(name: string): AttributeRule {
  const finding = invalid(name, 'it must be a boolean', 'wrong_type');
  return function ruleOfSwitch(_delta, value) {
    return typeof value === 'boolean' || value === null ? undefined : finding;
  };
}

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

/** Tokens are added, never removed: null is none to add. */
function pushTokens(delta: AttributesDelta, value: Json): Finding | undefined {
  if (value === null) return undefined;
  const list = Array.isArray(value) ? value : [value];
  if (!areRecords(list)) return invalid('push_tokens', 'it must be an array of objects', 'wrong_type');
  if (list.length > MAX_TOKENS)
    return invalid('push_tokens', `it must have at most ${MAX_TOKENS} elements`, 'too_many');
  const tokens: NonNullable<AttributesDelta['push_tokens']> = [];
  for (const { app_id, token, device_id } of list) {
    if (!hasBytes(app_id, 1, MAX_APP_ID)) {
      return invalidText('push_tokens.app_id', app_id, { min: 1, max: MAX_APP_ID });
    }
    if (!hasBytes(token, 1, MAX_TOKEN)) {
      return invalidText('push_tokens.token', token, { min: 1, max: MAX_TOKEN });
    }
    const device = device_id ?? derivedDeviceId(app_id, token);
    if (!hasBytes(device, MIN_DEVICE_ID, MAX_DEVICE_ID)) {
      return invalidText('push_tokens.device_id', device, { min: MIN_DEVICE_ID, max: MAX_DEVICE_ID });
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

function invalidText(
  field: string,
  value: Json | undefined,
  { min, max }: { min: number; max: number },
): Refusal {
  let reason: RejectionReason = 'wrong_type';
  if (typeof value === 'string') reason = Buffer.byteLength(value) > max ? 'too_large' : 'invalid';
  return invalid(field, `it must be a string of ${min} to ${max} bytes`, reason);
}

function hasBytes(value: Json | undefined, min: number, max: number): value is string {
  if (typeof value !== 'string') return false;
  const bytes = Buffer.byteLength(value);
  return bytes >= min && bytes <= max;
}
