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

/** The rules of the push attributes, by name in the API. */
const PUSH_ATTRIBUTES: [name: string, rule: AttributeRule][] = [['push_tokens', pushTokens]];

/** Members that identify the user or the app, and `bio`, which clients still send. */
const NO_DATA = ['external_id', 'user_alias', 'app_id', 'bio'];

export type AttributeRules = ReadonlyMap<string, AttributeRule>;

/** The rules of all names that are not custom attributes. */
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

/** Returns the rules of the attributes for a level of VENDOR_RULES. */
export function attributeRulesOf(vendorRules: Parameters<typeof standardOverrides>[0]): AttributeRules {
  const overrides = standardOverrides(vendorRules);
  return overrides.length === 0 ? RULES : new Map([...RULES, ...overrides]);
}

/** Names of attribute objects that are not custom attributes. */
export const NAMED_ATTRIBUTES: readonly string[] = [...RULES.keys()];

/** Settings and facts for the validation of an attribute object. */
export interface AttributeContext {
  /** Wire name of the service id, which is an identifier and not an attribute. */
  serviceIdField: string;
  /** Time of acceptance in epoch milliseconds. Later session dates are replaced by it. */
  now: number;
  longStrings: LongStrings;
  /** Default: the rules of the specification. */
  attributeRules?: AttributeRules;
}

/**
 * Converts an attribute object to the changes of a profile. `email` and `phone` are written to the profile even if they
 * are the identifier of the object. Null removes an attribute. The delta is empty if nothing changes.
 *
 * @param object a parsed JSON object
 * @returns the delta, with warnings if something was cut or omitted; or the refusal by the first attribute that breaks
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
    const outcome =
      finding === TOO_LONG ? addLong(delta, { name, value, rule }, { now, add, longStrings }) : finding;
    if ('error' in outcome) return outcome;
    warnings = withWarning(warnings, outcome.warning);
  }
  const bytes = customBytes(delta.set ?? {});
  if (bytes > MAX_CUSTOM_BYTES)
    return refuse('too_large', '', `the custom attributes are too large: ${bytes} bytes, ${COUNTED}`);
  const result = warnings ? { delta, warnings } : { delta };
  if (object.push_token_import !== true) return result;
  if (!delta.push_tokens) return required('push_tokens');
  // Each token creates a user with all of the attributes.
  if (bytes * delta.push_tokens.length > MAX_CUSTOM_BYTES)
    return invalid(
      'push_tokens',
      `the custom attributes of all tokens together are too large: ${bytes * delta.push_tokens.length} bytes, ${COUNTED}`,
      'too_large',
    );
  return result;
}

interface Attribute {
  name: string;
  value: Json;
  /** Absent for a custom attribute. */
  rule: AttributeRule | undefined;
}

interface AddOptions {
  now: number;
  /** Adds a custom attribute. */
  add: AddCustom;
  longStrings: LongStrings;
}

/** Adds an attribute with all texts cut to 255 characters, or refuses it. */
function addLong(
  delta: AttributesDelta,
  { name, value, rule }: Attribute,
  { now, add, longStrings }: AddOptions,
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

/** Validates a switch, which is read by other code. The rule only keeps it from becoming a custom attribute. */
function switchRule(name: string): AttributeRule {
  const finding = invalid(name, 'it must be a boolean', 'wrong_type');
  return function ruleOfSwitch(_delta, value) {
    return typeof value === 'boolean' || value === null ? undefined : finding;
  };
}

/** Maximum lengths in bytes. App and token are in one index entry, which Postgres limits to 2,704 bytes. */
const MAX_APP_ID = 255;
const MAX_TOKEN = 2048;

/** Lengths of a device id in bytes. The SDKs generate ids of these lengths. */
const MIN_DEVICE_ID = 8;
const MAX_DEVICE_ID = 255;

/** Maximum number of tokens in one object. An import creates a user for each. */
const MAX_TOKENS = 100;

/** Number of hexadecimal digits of a derived device id: 128 bits. */
const DERIVED_DEVICE_ID = 32;

/** Adds tokens. Attribute objects cannot remove tokens, and null adds none. */
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

/** Derives a device id from app and token, so that a repeated token gets the same device. */
function derivedDeviceId(appId: string, token: string): string {
  // The length separates the two texts: otherwise different pairs could have the same concatenation.
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
