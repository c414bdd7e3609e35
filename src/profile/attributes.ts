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
import { PUSH_ATTRIBUTES } from './push-tokens.ts';
import { STANDARD_ATTRIBUTES, SUBSCRIPTION_ATTRIBUTES } from './standard-attributes.ts';
import { cutText, cutTexts, isLongerThan, MAX_CHARACTERS, quoted } from './values.ts';

/** Members that address the object or say how to apply it, and `bio`, which clients still send. */
const NO_DATA = ['external_id', 'user_alias', 'app_id', 'bio'];

/** Every name that is not a custom attribute. */
const RULES: ReadonlyMap<string, AttributeRule> = new Map([
  ...STANDARD_ATTRIBUTES,
  ...SUBSCRIPTION_ATTRIBUTES,
  ...PUSH_ATTRIBUTES,
  ...NO_DATA.map((name): [string, AttributeRule] => [name, () => undefined]),
  ...['_merge_objects', '_update_existing_only', 'push_token_import'].map((name): [string, AttributeRule] => [
    name,
    switchRule(name),
  ]),
]);

/** Members of an attribute object that are not custom attributes. */
export const NAMED_ATTRIBUTES: readonly string[] = [...RULES.keys()];

/** What the attributes of an object are judged by. */
export interface AttributeContext {
  /** Wire name of the service id, which is an address and no attribute. */
  serviceIdField: string;
  /** Epoch milliseconds of acceptance: session dates past it become it. */
  now: number;
  longStrings: LongStrings;
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
  { serviceIdField, now, longStrings }: AttributeContext,
): { delta: AttributesDelta; warnings?: readonly string[] } | { error: string } {
  const delta: AttributesDelta = {};
  const add = object._merge_objects === true ? mergeCustom : addCustom;
  let warnings: readonly string[] | undefined;
  for (const name in object) {
    if (name === serviceIdField) continue;
    const value = object[name]!;
    const rule = RULES.get(name);
    const finding = rule ? rule(delta, value, now) : add(delta, name, value);
    if (finding === undefined) continue;
    const said =
      finding === TOO_LONG ? addLong(delta, { name, value, rule }, { now, add, longStrings }) : finding;
    if ('error' in said) return said;
    warnings = withWarning(warnings, said.warning);
  }
  const bytes = customBytes(delta.set ?? {});
  if (bytes > MAX_CUSTOM_BYTES)
    return { error: `the custom attributes are too large: together they may take ${COUNTED}` };
  const judged = warnings ? { delta, warnings } : { delta };
  if (object.push_token_import !== true) return judged;
  if (!delta.push_tokens) return { error: "'push_tokens' is required" };
  // Each token makes a user with all of the attributes.
  if (bytes * delta.push_tokens.length > MAX_CUSTOM_BYTES)
    return {
      error: `'push_tokens' is not valid: the custom attributes of all tokens together may take ${COUNTED}`,
    };
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
  return { error: `'${quoted(name)}' is not valid: ${broken} at most ${MAX_CHARACTERS} characters` };
}

/** A switch is read where it matters; here it is only no attribute. */
function switchRule(name: string): AttributeRule {
  const finding = { error: `'${name}' is not valid: it must be a boolean` };
  return function ruleOfSwitch(_delta, value) {
    return typeof value === 'boolean' || value === null ? undefined : finding;
  };
}
