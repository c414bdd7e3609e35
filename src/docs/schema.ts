import { type Html, html, type Part } from '../platform/html.ts';
import { grouped } from '../platform/numbers.ts';
import { inline } from './guides.ts';

/** JSON Schema, as far as the operations use it. */
export interface Schema {
  type?: string | readonly string[];
  description?: string;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  items?: Schema;
  additionalProperties?: boolean | Schema;
  [keyword: string]: unknown;
}

/** What is told in words of its own, or of no use to a reader. */
const TOLD = ['type', 'description', 'title', 'properties', 'required', 'items', 'additionalProperties'];

/** The words for rules that have a number or a value. */
const words: Record<string, (value: unknown) => Part> = {
  enum: (values) => html`one of ${listed(values as readonly unknown[])}`,
  const: (value) => html`always ${asCode(value)}`,
  format: (name) => (name === 'date-time' ? 'ISO 8601' : String(name)),
  pattern: (source) => html`matches <code>${source as string}</code>`,
  default: (value) => html`${asCode(value)} if absent`,
  minimum: (least) => `at least ${least}`,
  maximum: (most) => `at most ${most}`,
  minLength: (least) => `at least ${amount(least, 'character')}`,
  maxLength: (most) => `at most ${amount(most, 'character')}`,
  minItems: (least) => `at least ${amount(least, 'element')}`,
  maxItems: (most) => `at most ${amount(most, 'element')}`,
  uniqueItems: (is) => is === true && 'each once',
};

const amount = (number: unknown, unit: string) =>
  `${grouped(number as number)} ${unit}${number === 1 ? '' : 's'}`;

const asCode = (value: unknown) => html`<code>${JSON.stringify(value)}</code>`;

const listed = (values: readonly unknown[]) =>
  values.map((value, index) => [index > 0 && ', ', asCode(value)]);

/** The members of a schema, those of members below them. What has none is told in a line. */
export function schemaMembers(schema: Schema): Html {
  const members = membersOf(schema);
  return members ?? html`<p>${kindOf(schema)}${rulesOf(schema)}${described(schema)}</p>`;
}

/** Type and rules in a line: `text or null, at most 255 characters`. */
export function kindAndRules(schema: Schema): Html {
  return html`${kindOf(schema)}${rulesOf(schema)}`;
}

function membersOf(schema: Schema): Html | undefined {
  if (schema.type === 'array' && schema.items) return membersOf(schema.items);
  const named = Object.entries(schema.properties ?? {});
  const rest = schema.additionalProperties;
  const others =
    typeof rest === 'object'
      ? html`<li><span class="faint">any other name</span> <span class="kind">${kindAndRules(rest)}</span></li>`
      : rest === false && named.length > 0 && html`<li class="faint">no other members</li>`;
  if (named.length === 0 && !others) return undefined;
  const required = new Set(schema.required);
  return html`<ul class="members">${named.map(([name, member]) => memberOf(name, member, required.has(name)))}${others}</ul>`;
}

function memberOf(name: string, schema: Schema, isRequired: boolean): Html {
  const below = membersOf(schema);
  const count = below && Object.keys((schema.items ?? schema).properties ?? {}).length;
  const about = schema.items?.description;
  return html`<li><code>${name}</code> <span class="kind">${kindAndRules(schema)}</span>${isRequired && html` <span class="badge calm">required</span>`}${described(schema)}${
    about !== undefined && html`<div>${inline(about)}</div>`
  }${below && html`<details><summary>${count} ${count === 1 ? 'member' : 'members'}<span class="unseen"> of ${name}</span></summary>${below}</details>`}</li>`;
}

function described({ description }: Schema): Part {
  return description !== undefined && html`<div>${inline(description)}</div>`;
}

/** JSON's own words for the types. */
function kindOf({ type, items }: Schema): Part {
  const types = type === undefined ? [] : [type].flat();
  return types
    .map((one) =>
      one === 'array' && items?.type !== undefined ? `array of ${[items.type].flat().join(' or ')}` : one,
    )
    .join(' or ');
}

function rulesOf(schema: Schema): Part {
  const rules = Object.entries(schema)
    .filter(([keyword]) => !TOLD.includes(keyword))
    // A rule without words of its own is shown as it stands, not left out.
    .map(
      ([keyword, value]) =>
        words[keyword]?.(value) ?? html`<code>${keyword}: ${JSON.stringify(value)}</code>`,
    )
    .filter((rule) => rule !== false);
  const hasKind = schema.type !== undefined;
  return rules.map((rule, index) => [(index > 0 || hasKind) && ', ', rule]);
}
