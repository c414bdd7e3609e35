import { type Html, html } from '../platform/html.ts';
import type { Json } from '../profile/json.ts';

/** A sample request. `${NAME}` in a text is replaced by the variable of that name. */
interface Example {
  method: string;
  /** Path with its query. */
  path: string;
  body?: Json;
  /** Short description of the request. */
  note: string;
  /** The answer, if it does not depend on the installation. */
  answer?: Json;
  /** The request is authenticated with a SCIM token. */
  isScim?: true;
}

const tablet = { alias_label: 'device', alias_name: 'tablet-7' };

/**
 * Sample requests by operation id, in an order in which they can be sent. A test sends each request in each language as
 * shown. `${SUBSCRIPTION_GROUP_ID}` is the id of an email group.
 */
export const examples: Record<string, Example> = {
  'users.track': {
    method: 'POST',
    path: '/users/track',
    body: {
      attributes: [{ external_id: 'ada', first_name: 'Ada', email: 'ada@example.com', logins: { inc: 1 } }],
      events: [
        { external_id: 'ada', name: 'signed_up', time: '2026-01-31T12:00:00Z', properties: { plan: 'pro' } },
        { external_id: 'ada', name: 'signed_up' },
      ],
    },
    note: 'The second event has no time: it is named in errors, all else is stored.',
    answer: {
      attributes_processed: 1,
      events_processed: 1,
      message: 'success',
      errors: [{ type: "'time' is required", input_array: 'events', index: 1 }],
    },
  },
  'users.track.bulk': {
    method: 'POST',
    path: '/users/track/bulk',
    body: {
      attributes: [
        { external_id: 'ada', plan: 'pro' },
        { external_id: 'ada-old', plan: 'free' },
        { external_id: 'alan', plan: 'free' },
      ],
    },
    note: 'Up to 1,000 objects, of three users here.',
    answer: { attributes_processed: 3, message: 'success' },
  },
  'users.alias.new': {
    method: 'POST',
    path: '/users/alias/new',
    body: { user_aliases: [tablet] },
    note: 'A user is created that has only the alias.',
    answer: { aliases_processed: 1, message: 'success' },
  },
  'users.identify': {
    method: 'POST',
    path: '/users/identify',
    body: { aliases_to_identify: [{ external_id: 'ada', user_alias: tablet }] },
    note: 'The user with the alias is merged into ada.',
    answer: { aliases_processed: 1, message: 'success' },
  },
  'users.merge': {
    method: 'POST',
    path: '/users/merge',
    body: {
      merge_updates: [
        { identifier_to_merge: { external_id: 'ada-old' }, identifier_to_keep: { external_id: 'ada' } },
      ],
    },
    note: 'ada gets the data of ada-old that she lacks, and ada-old is deleted.',
    answer: { message: 'success' },
  },
  'users.delete': {
    method: 'POST',
    path: '/users/delete',
    body: { external_ids: ['alan'] },
    note: 'With everything that alan did. It cannot be undone.',
    answer: { deleted: 1, message: 'success' },
  },
  'subscription.status.set': {
    method: 'POST',
    path: '/subscription/status/set',
    body: {
      subscription_group_id: '${SUBSCRIPTION_GROUP_ID}',
      subscription_state: 'subscribed',
      email: ['ada@example.com'],
    },
    note: 'The state belongs to the address, independent of its users.',
    answer: { message: 'success' },
  },
  'subscription.status.get': {
    method: 'GET',
    path: '/subscription/status/get?subscription_group_id=${SUBSCRIPTION_GROUP_ID}&email=ada%40example.com',
    note: 'Subscribed, Unsubscribed or Unknown.',
    answer: { status: { 'ada@example.com': 'Subscribed' }, message: 'success' },
  },
  'events.list': {
    method: 'GET',
    path: '/events/list?page=0',
    note: 'The first 250 names.',
    answer: { events: ['signed_up'], message: 'success' },
  },
  'users.export.ids': {
    method: 'POST',
    path: '/users/export/ids',
    body: { external_ids: ['ada', 'nobody'] },
    note: 'The profile of ada. invalid_user_ids is empty.',
  },
  'scim.users.create': {
    method: 'POST',
    path: '/scim/v2/Users',
    body: {
      schemas: ['urn:ietf:params:scim:schemas:core:2.0:User'],
      userName: 'ada@example.com',
      name: { givenName: 'Ada', familyName: 'Lovelace' },
      department: 'engineering',
      permissions: {
        companyPermissions: ['manage_company_settings'],
        appGroup: [{ appGroupName: 'default', appGroupPermissions: ['basic_access', 'export_user_data'] }],
      },
    },
    note: 'An account of the console, which may then be invited.',
    isScim: true,
  },
};

const TYPE = 'Content-Type';

/** Maximum line width up to which a member stays on one line. */
const MAX_WIDTH = 76;

/** Formats JSON on several lines, but keeps short values on one line. */
export function readable(value: unknown, step = 2, indent = 0): string {
  const line = JSON.stringify(value, null, 1)
    .replace(/\s*\n\s*/g, ' ')
    .replace(/\{ | \}|\[ | \]/g, (edge) => edge.trim());
  if (typeof value !== 'object' || value === null || indent + line.length <= MAX_WIDTH) return line;
  const inner = indent + step;
  const pad = ' '.repeat(inner);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  const members = Array.isArray(value)
    ? value.map((one) => readable(one, step, inner))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${readable(one, step, inner)}`);
  return `${open}\n${members.map((member) => `${pad}${member}`).join(',\n')}\n${' '.repeat(indent)}${close}`;
}

interface Language {
  name: string;
  /** File name extension without the dot. */
  suffix: string;
  write(example: Example): string;
}

/** The languages of the samples. Each sample is a complete program that prints the answer. */
export const languages: Language[] = [
  { name: 'curl', suffix: 'sh', write: inCurl },
  { name: 'Node', suffix: 'mjs', write: inNode },
  { name: 'Python', suffix: 'py', write: inPython },
];

function headersOf({ isScim, body }: Example): [name: string, value: string][] {
  return [
    ['Authorization', `Bearer \${${isScim ? 'SCIM_TOKEN' : 'PENSTOCK_API_KEY'}}`],
    ...(isScim ? [['X-Request-Origin', '${SCIM_ORIGIN}'] as [string, string]] : []),
    ...(body !== undefined ? [[TYPE, 'application/json'] as [string, string]] : []),
  ];
}

function inCurl(example: Example): string {
  const { method, path, body } = example;
  const shown = (text: string) => text.replace(/\$\{(\w+)\}/g, '$$$1');
  const lines = [
    `curl -sS --fail-with-body -X ${method} "${shown(`\${PENSTOCK_URL}${path}`)}"`,
    ...headersOf(example).map(([name, value]) => `-H "${name}: ${shown(value)}"`),
    // The shell does not expand variables in single quotes, so the quotes end before a variable and start again after
    // it.
    ...(body === undefined ? [] : [`-d '${readable(body).replace(/\$\{(\w+)\}/g, `'"$$$1"'`)}'`]),
  ];
  return `${lines.join(' \\\n  ')}\n`;
}

function inNode(example: Example): string {
  const { method, path, body } = example;
  const text = (value: string) =>
    value.includes('${') ? `\`${value.replace(/\$\{(\w+)\}/g, '$${process.env.$1}')}\`` : `'${value}'`;
  const headers = headersOf(example).map(
    ([name, value]) => `    ${name.includes('-') ? `'${name}'` : name}: ${text(value)},\n`,
  );
  const sent =
    body === undefined
      ? ''
      : `  body: JSON.stringify(${readable(body, 2, 2).replace(/"\$\{(\w+)\}"/g, 'process.env.$1')}),\n`;
  return `const answer = await fetch(${text(`\${PENSTOCK_URL}${path}`)}, {
  method: '${method}',
  headers: {
${headers.join('')}  },
${sent}});
if (!answer.ok) throw new Error(\`\${answer.status} \${await answer.text()}\`);
console.log(await answer.text());
`;
}

function inPython(example: Example): string {
  const { method, path, body } = example;
  const text = (value: string) =>
    value.includes('${') ? `f"${value.replace(/\$\{(\w+)\}/g, "{os.environ['$1']}")}"` : `"${value}"`;
  const headers = headersOf(example).map(([name, value]) => `        "${name}": ${text(value)},\n`);
  const sent =
    body === undefined
      ? ''
      : `    data=json.dumps(${readable(body, 4, 4).replace(/"\$\{(\w+)\}"/g, 'os.environ["$1"]')}).encode(),\n`;
  const imports = [...(body === undefined ? [] : ['json']), 'os', 'urllib.request'];
  return `${imports.map((name) => `import ${name}\n`).join('')}
request = urllib.request.Request(
    ${text(`\${PENSTOCK_URL}${path}`)},
    method="${method}",
    headers={
${headers.join('')}    },
${sent})
with urllib.request.urlopen(request) as answer:
    print(answer.read().decode())
`;
}

/** Renders the samples of an operation. The reader can choose the language without JavaScript. */
export function samplesOf(operationId: string): Html | undefined {
  const example = examples[operationId];
  if (!example) return undefined;
  const choices = languages.map(
    ({ name, suffix }, index) =>
      html`<input type="radio" name="language" id="as-${suffix}" value="${suffix}"${index === 0 && html` checked`}><label for="as-${suffix}">${name}</label>`,
  );
  const texts = languages.map(
    (language) =>
      html`<pre tabindex="0" class="as-${language.suffix}"><code>${language.write(example)}</code></pre>`,
  );
  const variables = new Set(
    [...languages[1]!.write(example).matchAll(/process\.env\.(\w+)/g)].map(([, name]) => name!),
  );
  const named = [...variables].map((name, index) => html`${index > 0 && ', '}<code>${name}</code>`);
  return html`<p>${example.note}</p>
<p class="faint caption">From the environment: ${named}. <a href="/docs#try-it">What they are</a></p>
<div class="samples" role="group" aria-label="Language of the example">${choices}${texts}</div>
${example.answer !== undefined && html`<p class="faint caption">It is answered with</p><pre tabindex="0"><code>${readable(example.answer)}</code></pre>`}`;
}
