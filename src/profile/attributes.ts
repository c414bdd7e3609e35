import type { AttributeRule } from './attribute-rule.ts';
import type { AttributesDelta } from './attributes-delta.ts';
import { addCustom } from './custom-values.ts';
import type { Json } from './json.ts';
import { PUSH_ATTRIBUTES } from './push-tokens.ts';
import { STANDARD_ATTRIBUTES } from './standard-attributes.ts';
import { SUBSCRIPTION_ATTRIBUTES } from './subscriptions.ts';

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

/**
 * Turns an attribute object into what it changes on a profile. `email` and `phone` are written to the
 * profile, also where they address it; null removes an attribute. The delta is empty when nothing changes.
 *
 * @param object a parsed JSON object
 * @param serviceIdField wire name of the service id, which is an address and no attribute
 * @param now epoch milliseconds of acceptance: session dates past it become it
 * @returns the delta, or the error of the first attribute that breaks a rule
 */
export function normalizeAttributes(
  object: Record<string, Json>,
  serviceIdField: string,
  now: number,
): { delta: AttributesDelta } | { error: string } {
  const delta: AttributesDelta = {};
  const merge = object._merge_objects === true;
  for (const name in object) {
    if (name === serviceIdField) continue;
    const value = object[name]!;
    const rule = RULES.get(name);
    const error = rule ? rule(delta, value, now) : addCustom(delta, name, value, merge);
    if (error !== undefined) return { error };
  }
  if (object.push_token_import === true && !delta.push_tokens) return { error: "'push_tokens' is required" };
  return { delta };
}

/** A switch is read where it matters; here it is only no attribute. */
function switchRule(name: string): AttributeRule {
  const error = `'${name}' is not valid: it must be a boolean`;
  return function ruleOfSwitch(_delta, value) {
    return typeof value === 'boolean' || value === null ? undefined : error;
  };
}
