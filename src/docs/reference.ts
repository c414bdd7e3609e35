import { grouped } from '../platform/format.ts';
import { type Html, html, type Part } from '../platform/html.ts';
import { readable, samplesOf } from './examples.ts';
import { inline } from './guides.ts';
import { breakable, type Entry } from './layout.ts';

/** The parts of an OpenAPI document that the pages use. src/edge/openapi.ts creates it. */
export interface Document {
  paths: Record<string, Record<string, Described>>;
  components: { headers: Record<string, { description: string }> };
}

interface Described {
  operationId: string;
  tags: [string];
  summary: string;
  description: string;
  security?: { scimToken?: [] }[];
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema; example: unknown }> };
  responses: Record<string, Answer>;
}

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description?: string;
  schema: Schema;
  example?: string;
}

interface Answer {
  description: string;
  content?: Record<
    string,
    { schema: Schema; example?: unknown; examples?: Record<string, { value: unknown }> }
  >;
}

/** An operation with its method and path. */
interface Operation extends Described {
  method: string;
  route: string;
  /** Title of its group. */
  group: string;
}

const MESSAGES = 'Campaigns, Canvases and feeds';

/** Titles of the groups, by tag of the OpenAPI document, which is the first part of the path. */
const groups: Record<string, string> = {
  users: 'Users',
  subscription: 'Subscription groups',
  email: 'Email states',
  events: 'Events',
  purchases: 'Purchases',
  preference_center: 'Preference centers',
  cdi: 'Warehouse syncs',
  requests: 'Requests',
  scim: 'Console accounts (SCIM)',
  sms: 'Phone numbers',
  custom_attributes: 'Custom attributes',
  segments: 'Segments',
  ...{ campaigns: MESSAGES, canvas: MESSAGES, feed: MESSAGES },
};

export function operationsOf({ paths }: Document): Operation[] {
  return Object.entries(paths).flatMap(([route, methods]) =>
    Object.entries(methods).map(([method, described]) => {
      const [tag] = described.tags;
      return { ...described, method: method.toUpperCase(), route, group: groups[tag] ?? tag };
    }),
  );
}

export const operationPath = ({ operationId }: Pick<Operation, 'operationId'>) =>
  `/docs/reference/${operationId}`;

/**
 * Renders the page of an operation.
 * @param guides the guides that mention the operation
 */
export function operationPage(
  operation: Operation,
  headers: Document['components']['headers'],
  guides: Entry[],
): Html {
  const { method, route, summary, description, parameters = [], requestBody, responses } = operation;
  const [type, body] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const [about, ...rules] = description.split('\n\n');
  const samples = samplesOf(operation.operationId);
  return html`<h1>${summary}</h1>
<p class="endpoint"><span class="method">${method}</span> <code>${breakable(route)}</code></p>
<p>${inline(about!)}</p>
${rules.map((rule) => html`<p class="faint">${inline(rule)}</p>`)}
${guides.length > 0 && html`<p class="faint">Described in ${guides.map(({ path, title }, index) => html`${index > 0 && ', '}<a href="${path}">${title}</a>`)}.</p>`}
${samples && html`<h2>Example</h2>${samples}`}
${parameters.length > 0 && html`<h2>Parameters</h2><ul class="members">${parameters.map(parameterOf)}</ul>`}
${body && html`<h2>Body</h2><p class="faint">As <code>${type}</code>.</p>${schemaMembers(body.schema)}${!samples && json('An example', body.example)}`}
<h2>Answers</h2>
${Object.entries(responses).map(([status, answer]) => answerOf(Number(status), answer))}
<h2>Headers of every answer</h2>
<dl class="headers">${Object.entries(headers).map(
    ([name, header]) => html`<dt><code>${name}</code></dt><dd>${inline(header.description)}</dd>`,
  )}</dl>
${trialOf(operation, type, body?.example)}`;
}

/** Matches the ids of the operations that share a limit. Each of them is named on many pages. */
const SHARED_WITH = /, shared with [\w.]+(?:, [\w.]+)*/;

/** Returns the text of the page, for the search, without the operations that share its limit. */
export function textOf({
  method,
  route,
  operationId,
  description,
  parameters = [],
  requestBody,
}: Operation): string {
  const bodies = Object.values(requestBody?.content ?? {}).map(({ schema }) => namesIn(schema).join(' '));
  const names = parameters.map(({ name }) => name).join(' ');
  return `${method} ${route} ${operationId}. ${description.replace(SHARED_WITH, '.').replace(/[`*]/g, '')} ${names} ${bodies[0] ?? ''}`;
}

function namesIn(schema: Schema): string[] {
  const below = schema.items ? namesIn(schema.items) : [];
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, one]) => [name, ...namesIn(one)]);
  return [...new Set([...own, ...below])];
}

function parameterOf({ name, in: where, required, description, schema }: Parameter): Html {
  return html`<li><code>${name}</code> <span class="kind">${where}, ${kindAndRules(schema)}</span>${required && html` <span class="badge calm">required</span>`}<div>${inline(description ?? schema.description ?? '')}</div></li>`;
}

function answerOf(status: number, { description, content }: Answer): Html {
  const { schema, example, examples } = Object.values(content ?? {})[0] ?? {};
  if (status < 400)
    return html`<div class="answer"><h3><span class="badge good">${status}</span> ${inline(description)}</h3>${json('An example', example)}${
      schema &&
      html`<details><summary>Members<span class="unseen"> of the answer ${status}</span></summary>${schemaMembers(schema)}</details>`
    }</div>`;
  const bodies = Object.values(examples ?? {}).map(
    ({ value }) => html`<li><code>${JSON.stringify(value)}</code></li>`,
  );
  return html`<details class="answer"><summary><span class="badge ${status < 500 ? 'warn' : 'bad'}">${status}</span> <span class="reasons">${description}</span></summary>${
    bodies.length > 0 && html`<ul class="bodies">${bodies}</ul>`
  }</details>`;
}

function json(title: string, value: unknown): Part {
  return (
    value !== undefined &&
    html`<p class="faint caption">${title}</p><pre tabindex="0"><code>${readable(value)}</code></pre>`
  );
}

/** Renders a form that sends a request to this installation. It is visible only with JavaScript. */
function trialOf(
  { method, route, parameters = [], security }: Operation,
  type: string | undefined,
  example: unknown,
): Html {
  const isScim = security?.some(({ scimToken }) => scimToken) ?? false;
  const shown = parameters.filter(({ name, required }) => name !== 'Idempotency-Key' || required);
  return html`<section class="trial" data-trial data-method="${method}" data-route="${route}"${type !== undefined && html` data-type="${type}"`} hidden>
<h2>Try it</h2>
<p class="faint">It is sent to this installation, and what it changes is changed. ${isScim ? 'The token' : 'The key'} is kept nowhere but in this field.</p>
<div class="fields"><label>${isScim ? 'SCIM token' : 'API key'} <input type="password" autocomplete="off" data-key></label>
${shown.map(
  ({ name, in: where, example: value }) =>
    html`<label>${name} <input data-name="${name}" data-in="${where}" value="${value}" autocomplete="off"></label>`,
)}</div>
${example !== undefined && html`<label>Body <textarea data-body spellcheck="false">${readable(example)}</textarea></label>`}
<p><button type="button" class="main" data-send>Send</button></p>
<p role="status" data-status></p>
<pre tabindex="0" data-answer hidden></pre>
</section>`;
}

/** The parts of JSON Schema that the operations use. */
interface Schema {
  type?: string | readonly string[];
  description?: string;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  items?: Schema;
  additionalProperties?: boolean | Schema;
  [keyword: string]: unknown;
}

/** Keywords that the page shows in another way or omits. */
const DESCRIBED = ['type', 'description', 'title', 'properties', 'required', 'items', 'additionalProperties'];

/** Descriptions of rules that have a number or a value. */
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

/** Renders the members of a schema, recursively. A schema without members is shown on one line. */
function schemaMembers(schema: Schema): Html {
  const members = membersOf(schema);
  return members ?? html`<p>${kindOf(schema)}${rulesOf(schema)}${described(schema)}</p>`;
}

/** Renders type and rules on one line, for example `string or null, at most 255 characters`. */
function kindAndRules(schema: Schema): Html {
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

/** Returns the JSON names of the types. */
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
    .filter(([keyword]) => !DESCRIBED.includes(keyword))
    // A rule without a description is shown as JSON instead of being omitted.
    .map(
      ([keyword, value]) =>
        words[keyword]?.(value) ?? html`<code>${keyword}: ${JSON.stringify(value)}</code>`,
    )
    .filter((rule) => rule !== false);
  const hasKind = schema.type !== undefined;
  return rules.map((rule, index) => [(index > 0 || hasKind) && ', ', rule]);
}
