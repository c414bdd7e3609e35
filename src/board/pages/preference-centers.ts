import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';
import type { PreferenceCenter } from '../../generated/prisma/client.ts';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { documentOf, type Head } from '../../preferences/page.ts';
import { RendererBusy } from '../../preferences/renderer.ts';
import { type LiveGroup, sampleView, type View, viewOf } from '../../preferences/submission.ts';
import { TemplateError } from '../../preferences/template.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { isUuid } from '../../profile/values.ts';
import { optional, readExternalId, text } from '../../resources/fields.ts';
import { revokePreferenceLinks } from '../../resources/operator-actions.ts';
import { Refusal } from '../../resources/refusal.ts';
import type { StoredUser } from '../../store/export.ts';
import type { Workspace } from '../access.ts';
import { lacking, type Page, PageError, type PageServices, requirePermit, type Visit } from '../console.ts';
import {
  badge,
  count,
  empty,
  facts,
  MASK,
  moment,
  pathWith,
  table,
  tree,
  uuid,
  workspaceChoice,
} from '../layout.ts';
import { formFields, formProblem, problemsOf, readForm, type Sent } from '../resource-form.ts';
import { chooseUser, chosenUser, presentWorkspace } from './groups.ts';
import { isAddress } from './users.ts';

/** Number of preference centers on a list page. */
const PAGE = 100;

/** Maximum number of characters shown of a template. */
const MAX_SHOWN_LENGTH = 20_000;

/** Maximum number of groups that a preview loads. */
const MAX_GROUPS = 1000;

const screens = { phone: 'Phone, 390 px', desktop: 'Desktop, 1280 px' } as const;
const templates = { page: 'Page', confirmation: 'Confirmation' } as const;

/** Returns the choice that the query names, or the first one. */
function choice<Name extends string>(among: Record<Name, string>, given: string): Name {
  const names = Object.keys(among) as Name[];
  return names.find((name) => name === given) ?? names[0]!;
}

const list: Page<PageServices> = {
  method: 'get',
  path: '/preference-centers',
  right: 'centers',
  async handle(visit) {
    const { services, workspaces, query } = visit;
    const workspace = await presentWorkspace(visit);
    const after = query('after');
    const centers = await services.database.prisma.preferenceCenter.findMany({
      where: { workspaceId: workspace.id, ...(after !== '' && { name: { gt: after } }) },
      select: { id: true, name: true, title: true, state: true, createdAt: true, updatedAt: true },
      orderBy: { name: 'asc' },
      take: PAGE + 1,
    });
    const { rows: shown, next } = takePage(centers, PAGE, ({ name }) => name);
    const body = html`<h1>Preference centers</h1>
<p class="lead">Pages of the workspace ${workspace.name} on which a user chooses what to get.</p>
${workspaces.length > 1 && workspaceForm(workspaces, workspace)}
${
  shown.length === 0
    ? empty(
        after === '' ? 'No preference center yet' : 'None behind this one',
        after === ''
          ? html`Make one with <code>POST /preference_center/v1</code>; it has a name, a page and a confirmation, both in HTML.`
          : html`<a href="/preference-centers">The first ones</a>`,
      )
    : table(
        `Preference centers of ${workspace.name}`,
        ['Name', 'Title', 'State', 'Id', 'Made', 'Changed'],
        shown.map(({ id, name, title, state, createdAt, updatedAt }) => [
          html`<a class="wrap" href="/preference-centers/${id}">${name}</a>`,
          html`<span class="wrap">${title}</span>`,
          stateBadge(state),
          uuid(id),
          moment(createdAt),
          moment(updatedAt),
        ]),
      )
}
${next !== null && html`<p class="pager"><a rel="next" href="${pathWith('/preference-centers', { workspace: workspace.id, after: next })}">More</a></p>`}`;
    return { title: 'Preference centers', body };
  },
};

const stateBadge = (state: string) => badge(state, state === 'active' ? 'good' : 'warn');

const workspaceForm = (workspaces: Workspace[], chosen: Workspace) =>
  html`<form class="row" method="get" action="/preference-centers">${workspaceChoice(workspaces, chosen, { mayBeAll: false })}<button class="main">Show</button></form>`;

interface Found {
  center: PreferenceCenter;
  workspace: Workspace;
}

/** @throws {PageError} if no workspace of the viewer contains the preference center */
async function findCenter({ services, findWorkspace, params }: Visit<PageServices>): Promise<Found> {
  const id = params.id ?? '';
  const center = isUuid(id)
    ? await services.database.prisma.preferenceCenter.findFirst({
        where: { id },
      })
    : null;
  const workspace = center ? await findWorkspace(center.workspaceId) : undefined;
  if (!center || !workspace)
    throw new PageError(404, 'There is no such preference center in your workspaces.');
  return { center, workspace };
}

/** Fields of the form that revokes links. */
const revokeFields = {
  external_id: optional(
    text(
      {
        label: 'External id',
        help: 'revoke the links of this user to all preference centers; empty: the links of all users to this one',
        value: 'id',
      },
      readExternalId,
      { maxLength: MAX_EXTERNAL_ID_BYTES, isExact: true },
    ),
  ),
};

const show: Page<PageServices> = {
  method: 'get',
  path: '/preference-centers/:id',
  right: 'centers',
  handle: async (visit) => centerPage(visit, await findCenter(visit)),
};

async function centerPage(visit: Visit<PageServices>, { center, workspace }: Found, sent?: Sent) {
  const { viewer, query } = visit;
  const user = await chosenUser(visit, workspace);
  const path = `/preference-centers/${center.id}`;
  const shown = {
    screen: choice(screens, query('screen')),
    template: choice(templates, query('template')),
  };
  const linkTo = (change: Partial<typeof shown>) =>
    pathWith(path, { ...shown, ...change, user: query('user') });
  const pii = viewer.can('pii', workspace.id);
  const body = html`<h1>${center.name}</h1>
<p class="lead">Preference center of the workspace ${workspace.name}</p>
<div class="card">${facts([
    ['State', stateBadge(center.state)],
    ['Title', center.title],
    ['Id', uuid(center.id)],
    ['Page', count(center.pageHtml.length, 'character')],
    ['Confirmation', count(center.confirmationHtml.length, 'character')],
    ['Made', moment(center.createdAt)],
    ['Changed', moment(center.updatedAt)],
  ])}</div>
<h2>Preview</h2>
${chooseUser(
  { ...visit, workspaces: [workspace] },
  { path, workspace, keep: { screen: shown.screen, template: shown.template } },
)}
<p class="lead">${user ? html`As ${query('user')} would see it now.${!pii && ' Without the permission “view_pii” values are masked, and custom attributes are omitted.'} ${closedFor(user, center)}` : 'With values that are made up, and every group subscribed. Choose a user to see it as this one would.'} Nothing in it can be pressed, and images and styles of other hosts are omitted.</p>
${tabs('Screen', screens, { present: shown.screen, to: (screen) => linkTo({ screen }) })}
${tabs('Template', templates, { present: shown.template, to: (template) => linkTo({ template }) })}
<div class="scroll preview" role="region" aria-label="Preview" tabindex="0"><iframe class="${shown.screen}" sandbox="" referrerpolicy="no-referrer" title="${templates[shown.template]} of ${center.name}" src="${pathWith(`${path}/preview`, { template: shown.template, user: query('user') })}"></iframe></div>
<h2>Options</h2>${optionsOf(center)}
<h2>Templates</h2>${source('Page', center.pageHtml)}${source('Confirmation', center.confirmationHtml)}
${
  viewer.can('change', workspace.id) &&
  html`<h2 id="revoke">Revoke links</h2><p class="lead">Revoked links never work again. Links that are created afterwards work.</p>
<form class="stack card" method="post" action="${path}#revoke">${formProblem(sent)}${formFields(revokeFields, { id: 'revoke', sent })}
<label>Type revoke to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="revoke" required></label>
<p class="actions"><button class="danger">Revoke links</button></p></form>`
}`;
  return { title: center.name, body };
}

const revoke: Page<PageServices> = {
  method: 'post',
  path: '/preference-centers/:id',
  right: 'change',
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const found = await findCenter(visit);
    const { center, workspace } = found;
    if (!viewer.can('centers', workspace.id)) throw lacking('centers');
    const { values, ...sent } = readForm(visit, revokeFields);
    const again = async (problems: Sent['problems']) => ({
      ...(await centerPage(visit, found, { ...sent, problems })),
      status: 400,
    });
    if (Object.keys(sent.problems).length > 0) return again(sent.problems);
    if (field('confirm').trim() !== 'revoke')
      return again({ '': 'The text does not match revoke. Nothing was changed.' });
    const externalId = values.external_id as string | undefined;
    if (externalId !== undefined) {
      requirePermit(visit, ['users', 'change'], workspace.id);
      // An external id that looks like an address is only confirmed to viewers who may see addresses.
      if (isAddress(externalId) && !viewer.can('pii', workspace.id)) throw lacking('pii');
    }
    try {
      await revokePreferenceLinks(
        { database: services.database, actor },
        workspace.id,
        externalId === undefined ? { centerId: center.id } : { externalId },
      );
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return again(problemsOf(error, revokeFields));
    }
    return { to: pathWith(`/preference-centers/${center.id}`, { done: 'revoked' }) };
  },
};

/** Returns the reason why a link would not work for the user; undefined if it works. */
function closedFor({ external_id, email }: StoredUser, { state }: PreferenceCenter): Part {
  if (state !== 'active') return 'The preference center is a draft: its links do not work.';
  if (external_id !== null && email !== null) return undefined;
  return 'A link opens nothing for this user, who lacks an external id or an email address.';
}

function tabs<Name extends string>(
  name: string,
  among: Record<Name, string>,
  { present, to }: { present: Name; to(name: Name): string },
): Html {
  return html`<nav class="tabs" aria-label="${name}">${(Object.entries(among) as [Name, string][]).map(
    ([one, text]) =>
      html`<a class="tab" href="${to(one)}"${one === present && html` aria-current="page"`}>${text}</a>`,
  )}</nav>`;
}

function optionsOf({ options }: PreferenceCenter): Html {
  const given = options as Json;
  return Object.keys(given as object).length === 0
    ? empty('None', 'They would be elements of the head: the viewport, and links to icons.')
    : html`<div class="card">${tree(given)}</div>`;
}

function source(name: string, template: string): Html {
  const more = template.length - MAX_SHOWN_LENGTH;
  return html`<details class="source"><summary>${name}</summary><div class="scroll" role="region" aria-label="${name}, as it was written" tabindex="0"><pre>${template.slice(0, MAX_SHOWN_LENGTH)}</pre></div>${more > 0 && html`<p class="faint">and ${grouped(more)} characters more</p>`}</details>`;
}

const preview: Page<PageServices> = {
  method: 'get',
  path: '/preference-centers/:id/preview',
  right: 'centers',
  async handle(visit) {
    const { services, viewer, query } = visit;
    const { center, workspace } = await findCenter(visit);
    const user = await chosenUser(visit, workspace);
    const groups = await services.database.prisma.subscriptionGroup.findMany({
      where: { workspaceId: workspace.id, archivedAt: null },
      select: { id: true, channel: true },
      orderBy: { id: 'asc' },
      take: MAX_GROUPS,
    });
    const view = viewFor(user, groups, viewer.can('pii', workspace.id));
    const isPage = choice(templates, query('template')) === 'page';
    const template = isPage ? center.pageHtml : center.confirmationHtml;
    const head = { title: center.title, options: center.options as Head['options'] };
    try {
      const rendered = await services.renderer.render(workspace.id, { template, view });
      return { framed: quiet(documentOf(rendered.html, head)) };
    } catch (error) {
      if (error instanceof RendererBusy)
        throw new PageError(503, 'Too many previews are running. Try again in a few seconds.');
      if (!(error instanceof TemplateError)) throw error;
      return {
        framed: html`<!doctype html><title>No preview</title><p>The preview failed: ${error.message}</p>`
          .text,
      };
    }
  },
};

function viewFor(user: StoredUser | undefined, groups: LiveGroup[], pii: boolean): View {
  const all = Object.fromEntries(groups.map(({ id }) => [id, 'subscribed' as const]));
  if (!user) return { ...sampleView, groups: all };
  const view = viewOf(user, groups, sampleView.submitUrl);
  if (pii) return view;
  const masked = Object.keys(view.attributes).map((name) => [name, MASK]);
  return { ...view, attributes: Object.fromEntries(masked), customAttributes: {} };
}

export const preferenceCenterPages = [list, show, preview, revoke];

/** Attributes that navigate, or name a navigation target. */
const LEADING = ['href', 'xlink:href', 'action', 'formaction', 'ping', 'target', 'http-equiv', 'download'];

/** Attributes that load a resource. Values with a `data:` URL are allowed. */
const LOADING = ['src', 'srcset', 'poster', 'background', 'data'];

const nothing = () => {};

const ignored: TokenizerCallbacks = {
  ...{ onattribdata: nothing, onattribentity: nothing, onattribend: nothing, onattribname: nothing },
  ...{ oncdata: nothing, onclosetag: nothing, oncomment: nothing, ondeclaration: nothing, onend: nothing },
  ...{ onopentagend: nothing, onopentagname: nothing, onprocessinginstruction: nothing },
  ...{ onselfclosingtag: nothing, ontext: nothing, ontextentity: nothing },
};

/**
 * Disables links, forms and external resources in a preview by renaming their attributes to `data-…`. Security does not
 * depend on this but on the response's content security policy. It keeps the preview in place when a viewer clicks in
 * it. Uses a tokenizer in a single pass: building a tree of deeply nested elements would take minutes.
 */
export function quiet(page: string): string {
  /** Offsets of the attribute names to rename. */
  const positions: number[] = [];
  let isLoading = false;
  const tokenizer = new Tokenizer(
    { decodeEntities: false },
    {
      ...ignored,
      // Otherwise the tokenizer would skip a <title> inside an SVG as text, although browsers parse its content as
      // markup.
      isInForeignContext: () => true,
      onattribname(start, end) {
        const name = page.slice(start, end).toLowerCase();
        isLoading = LOADING.includes(name);
        if (isLoading || LEADING.includes(name)) positions.push(start);
      },
      onattribdata(start) {
        if (isLoading && /^\s*data:/i.test(page.slice(start, start + 20))) positions.pop();
        isLoading = false;
      },
    },
  );
  tokenizer.write(page);
  tokenizer.end();
  let text = '';
  let from = 0;
  for (const linkTo of positions) {
    text += `${page.slice(from, linkTo)}data-`;
    from = linkTo;
  }
  return text + page.slice(from);
}
