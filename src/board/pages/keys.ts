import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isAddressOrSubnet } from '../../platform/listen.ts';
import { isUuid } from '../../profile/values.ts';
import { permissions } from '../../schemas/permissions.ts';
import {
  apiKeyColumns,
  type KeyUsage,
  makeApiKey,
  readKeyUsage,
  revokeApiKey,
  type ShownApiKey,
} from '../../store/api-keys.ts';
import type { Workspace } from '../access.ts';
import { dailyChart } from '../chart.ts';
import { chosenWorkspace, lacking, type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { badge, count, empty, facts, moment, nextPage, table, workspaceChoice } from '../layout.ts';

const PAGE = 50;

/** Days of requests that the page of a key shows. */
const DAYS = 30;

const MAX_NAME = 255;

/** Addresses and subnets of one key. */
const MAX_ALLOWED = 100;

const list: Page<PageServices> = {
  method: 'get',
  path: '/keys',
  right: 'keys',
  async handle(visit) {
    const { services, viewer, workspaces, query } = visit;
    const chosen = await chosenWorkspace(visit);
    const before = isUuid(query('before')) ? query('before') : undefined;
    const found = await services.database.prisma.apiKey.findMany({
      where: {
        workspaceId: { in: (chosen ? [chosen] : workspaces).map(({ id }) => id) },
        ...(before !== undefined && { id: { lt: before } }),
      },
      orderBy: { id: 'desc' },
      take: PAGE + 1,
      select: apiKeyColumns,
    });
    const several = workspaces.length > 1;
    const makers = (chosen ? [chosen] : workspaces).filter(({ id }) => viewer.can('edit_keys', id));
    const body = html`<h1>API keys</h1>
<p class="lead">What clients prove themselves with. Permissions and addresses of a key never change: make another one, and revoke the old.</p>
${several && html`<form class="row" method="get" action="/keys">${workspaceChoice(workspaces, chosen)}<button>Show</button></form>`}
${
  found.length === 0
    ? empty(
        'No keys yet',
        makers.length > 0
          ? 'Create one below. Its secret is shown once.'
          : 'You need the permission “edit_api_keys” to create one.',
      )
    : keyTable(found.slice(0, PAGE), several)
}
${found.length > PAGE && nextPage('/keys', { workspace: chosen?.id, before: found[PAGE - 1]!.id })}
${makers.length > 0 && makeForm(makers, chosen)}`;
    return { title: 'API keys', body };
  },
};

function stateOf({ revokedAt }: ShownApiKey): Html {
  return revokedAt === null ? badge('active', 'good') : badge('revoked', 'calm');
}

/** Every permission would make a table of one screen a line. */
function brief(given: readonly string[]): Part {
  if (permissions.every((one) => given.includes(one))) return 'all';
  return given.length > 4 ? `${given.slice(0, 3).join(', ')} and ${given.length - 3} more` : given.join(', ');
}

function keyTable(keys: ShownApiKey[], several: boolean): Html {
  return table(
    'API keys',
    ['Name', 'Begins with', ...(several ? ['Workspace'] : []), 'State', 'Permissions', 'Last seen', 'Made'],
    keys.map((key) => [
      html`<a href="/keys/${key.id}">${key.name}</a>`,
      html`<code>${key.identifier}…</code>`,
      ...(several ? [key.workspace.name] : []),
      stateOf(key),
      html`<span class="wrap">${brief(key.permissions)}</span>`,
      moment(key.lastSeenAt),
      moment(key.createdAt),
    ]),
  );
}

function makeForm(workspaces: Workspace[], chosen: Workspace | undefined): Html {
  const [only] = workspaces;
  return html`<h2>Create a key</h2>
<form class="stack card" method="post" action="/keys">
${
  workspaces.length === 1
    ? html`<input type="hidden" name="workspace" value="${only!.id}">`
    : html`<label>Workspace <select name="workspace" required>${workspaces.map(({ id, name }) => html`<option value="${id}"${id === chosen?.id && html` selected`}>${name}</option>`)}</select></label>`
}
<label>Name, for whoever looks for it later <input name="name" maxlength="${MAX_NAME}" required autocomplete="off"></label>
<label>Addresses and subnets from which the key can be used, separated by commas; empty: any <input name="allowlist" maxlength="5000" autocomplete="off" placeholder="10.0.0.0/8, 192.0.2.7"></label>
<fieldset><legend>Permissions</legend><div class="choices">${permissions.map((name) => html`<label class="check"><input type="checkbox" name="permission" value="${name}"> <code>${name}</code></label>`)}</div></fieldset>
<p class="actions"><button class="main">Create key</button></p></form>`;
}

const make: Page<PageServices> = {
  method: 'post',
  path: '/keys',
  right: 'edit_keys',
  async handle({ services, findWorkspace, actor, field, fields }) {
    const workspace = await findWorkspace(field('workspace'));
    if (!workspace)
      throw new Sorry(400, "'workspace' must be the id of a workspace in which you can create keys.");
    const name = field('name').trim();
    if (name === '' || name.length > MAX_NAME)
      throw new Sorry(400, `'name' has 1 to ${MAX_NAME} characters.`);
    const given = fields('permission');
    const wanted = permissions.filter((one) => given.includes(one));
    if (wanted.length === 0 || given.some((one) => !wanted.some((known) => known === one)))
      throw new Sorry(400, "'permission' must be one or more of the listed permissions.");
    const ipAllowlist = readAllowlist(field('allowlist'));
    const { secret, key } = await makeApiKey(services.database, actor, {
      ...{ workspaceId: workspace.id, name, permissions: wanted, ipAllowlist },
    });
    const body = html`<h1>API key created</h1>
<p class="banner warn" role="status">Keep it now: it is stored nowhere, and is not shown again.</p>
<p><code class="secret">${secret}</code></p>
<p class="lead">Clients send it as <code>Authorization: Bearer …</code> to the workspace ${workspace.name}.</p>
<p class="actions"><a class="button" href="/keys/${key.id}">To the key</a></p>`;
    return { title: 'New API key', body };
  },
};

/** @throws {Sorry} naming what is none */
function readAllowlist(text: string): string[] {
  const entries = [...new Set(text.split(',').map((one) => one.trim()))].filter((one) => one !== '');
  if (entries.length > MAX_ALLOWED)
    throw new Sorry(400, `'allowlist' must have at most ${MAX_ALLOWED} addresses and subnets.`);
  const wrong = entries.find((one) => !isAddressOrSubnet(one));
  if (wrong !== undefined)
    throw new Sorry(
      400,
      `'allowlist': ${wrong.slice(0, 80)} is not an IP address or a subnet, for example 10.0.0.0/8.`,
    );
  return entries;
}

/** @throws {Sorry} when there is none in a workspace of the viewer's */
async function findKey({ services, findWorkspace, params }: Visit<PageServices>): Promise<ShownApiKey> {
  const id = params.id ?? '';
  const key = isUuid(id)
    ? await services.database.prisma.apiKey.findUnique({ where: { id }, select: apiKeyColumns })
    : null;
  if (key === null || !(await findWorkspace(key.workspaceId)))
    throw new Sorry(404, 'API key not found in your workspaces.');
  return key;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/keys/:id',
  right: 'keys',
  async handle(visit) {
    const key = await findKey(visit);
    const usage = await readKeyUsage(visit.services.database.pool, key, DAYS);
    const mayRevoke = visit.viewer.can('edit_keys', key.workspaceId) && key.revokedAt === null;
    return { title: key.name, body: keyPage(key, { usage, mayRevoke }) };
  },
};

interface Shown {
  usage: KeyUsage[];
  mayRevoke: boolean;
  problem?: string;
}

function keyPage(key: ShownApiKey, { usage, mayRevoke, problem }: Shown): Html {
  return html`<h1>${key.name}</h1>
${problem !== undefined && html`<p class="banner bad" role="alert">${problem}</p>`}
<div class="card">${facts([
    ['State', stateOf(key)],
    ['Begins with', html`<code>${key.identifier}…</code>`],
    ['Id, as log lines have it', html`<span class="id">${key.id}</span>`],
    ['Workspace', key.workspace.name],
    ['Last seen', moment(key.lastSeenAt)],
    ['Made', moment(key.createdAt)],
    ['Revoked', key.revokedAt && moment(key.revokedAt)],
    ['Allowed from', key.ipAllowlist.length === 0 ? 'any address' : key.ipAllowlist.join(', ')],
    ['Permissions', html`<span class="wrap">${key.permissions.join(', ')}</span>`],
  ])}</div>
<h2>Requests</h2>
<p class="lead">By bucket, as the limits count them. Web processes write theirs down once a minute.</p>
${requests(usage)}
${mayRevoke && revokeForm(key)}`;
}

function requests(usage: KeyUsage[]): Part {
  if (usage.length === 0)
    return empty('No requests in the last 30 days', 'Its first request appears here a minute later.');
  return html`${dailyChart(
    'Requests by day',
    usage.map(({ day, requests: value }) => ({ day, value })),
    { days: DAYS },
  )}
${table(
  'Requests by day and bucket',
  ['Day', 'Bucket', { name: 'Requests', number: true }, { name: 'Refused by the limit', number: true }],
  usage.map((row) => [
    row.day,
    html`<code>${row.bucket}</code>`,
    grouped(row.requests),
    grouped(row.refused),
  ]),
)}
<p class="faint pager">${count(
    usage.reduce((sum, row) => sum + row.requests, 0),
    'request',
  )} in ${DAYS} days. Days are those of UTC.</p>`;
}

function revokeForm({ id, identifier }: ShownApiKey): Html {
  return html`<h2>Revoke</h2>
<p class="lead">Permanent. Every web process refuses the key within KEY_CACHE_MS.</p>
<form class="stack card" method="post" action="/keys/${id}">
<label>Type ${identifier} to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="${identifier}" required></label>
<p class="actions"><button class="danger">Revoke key</button></p></form>`;
}

const revoke: Page<PageServices> = {
  method: 'post',
  path: '/keys/:id',
  right: 'edit_keys',
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const key = await findKey(visit);
    if (!viewer.can('keys', key.workspaceId)) throw lacking('keys');
    if (field('confirm').trim() !== key.identifier) {
      const usage = await readKeyUsage(services.database.pool, key, DAYS);
      const problem = 'The first characters of the key do not match. The key was not revoked.';
      const body = keyPage(key, { usage, mayRevoke: key.revokedAt === null, problem });
      return { title: key.name, body, status: 400 };
    }
    await revokeApiKey(services.database, actor, key.id);
    return { to: `/keys/${key.id}?done=revoked` };
  },
};

export const keyPages = [list, make, show, revoke];
