import { type Html, html, type Part } from '../platform/html.ts';
import { readable, samplesOf } from './examples.ts';
import { inline } from './guides.ts';
import { breakable, type Entry } from './layout.ts';
import { kindAndRules, type Schema, schemaMembers } from './schema.ts';

/** An OpenAPI document, as far as pages are made of it: that of src/edge/openapi.ts, as JSON. */
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

/** An operation with its place, as its page shows it. */
export interface Operation extends Described {
  method: string;
  route: string;
  /** What it is about. */
  group: string;
}

/** What the first part of a path stands for. */
const groups: Record<string, string> = {
  users: 'Users',
  subscription: 'Subscription groups',
  email: 'Email states',
  events: 'Events',
  purchases: 'Purchases',
  preference_center: 'Preference centers',
  cdi: 'Warehouse syncs',
  requests: 'Requests',
  scim: 'Dashboard accounts (SCIM)',
};

export function operationsOf({ paths }: Document): Operation[] {
  return Object.entries(paths).flatMap(([route, methods]) =>
    Object.entries(methods).map(([method, described]) => {
      const [tag] = described.tags;
      return { ...described, method: method.toUpperCase(), route, group: groups[tag] ?? tag };
    }),
  );
}

export const pathOf = ({ operationId }: Pick<Operation, 'operationId'>) => `/docs/reference/${operationId}`;

/** @param told the guides that tell of the operation */
export function operationPage(
  operation: Operation,
  headers: Document['components']['headers'],
  told: Entry[],
): Html {
  const { method, route, summary, description, parameters = [], requestBody, responses } = operation;
  const [type, body] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const [about, ...rules] = description.split('\n\n');
  const samples = samplesOf(operation.operationId);
  return html`<h1>${summary}</h1>
<p class="endpoint"><span class="method">${method}</span> <code>${breakable(route)}</code></p>
<p>${inline(about!)}</p>
${rules.map((rule) => html`<p class="faint">${inline(rule)}</p>`)}
${told.length > 0 && html`<p class="faint">Told of in ${told.map(({ path, title }, index) => html`${index > 0 && ', '}<a href="${path}">${title}</a>`)}.</p>`}
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

/** The page without its marks, for the search. */
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
  return `${method} ${route} ${operationId}. ${description.replace(/[`*]/g, '')} ${names} ${bodies[0] ?? ''}`;
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

/** A request of one's own to this installation: script shows it, and sends it. */
function trialOf(
  { method, route, parameters = [], security }: Operation,
  type: string | undefined,
  example: unknown,
): Html {
  const isScim = security?.some(({ scimToken }) => scimToken) ?? false;
  const asked = parameters.filter(({ name, required }) => name !== 'Idempotency-Key' || required);
  return html`<section class="trial" data-trial data-method="${method}" data-route="${route}"${type !== undefined && html` data-type="${type}"`} hidden>
<h2>Try it</h2>
<p class="faint">It is sent to this installation, and what it changes is changed. ${isScim ? 'The token' : 'The key'} is kept nowhere but in this field.</p>
<div class="fields"><label>${isScim ? 'SCIM token' : 'API key'} <input type="password" autocomplete="off" data-key></label>
${asked.map(
  ({ name, in: where, example: value }) =>
    html`<label>${name} <input data-name="${name}" data-in="${where}" value="${value}" autocomplete="off"></label>`,
)}</div>
${example !== undefined && html`<label>Body <textarea data-body spellcheck="false">${readable(example)}</textarea></label>`}
<p><button type="button" class="main" data-send>Send</button></p>
<p role="status" data-status></p>
<pre tabindex="0" data-answer hidden></pre>
</section>`;
}
