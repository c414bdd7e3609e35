import { Tokenizer, type TokenizerCallbacks } from 'htmlparser2';
import type { PreferenceCenter } from '../../generated/prisma/client.ts';
import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { documentOf, type Head } from '../../preferences/page.ts';
import { RendererBusy } from '../../preferences/renderer.ts';
import { type LiveGroup, sampleView, type View, viewOf } from '../../preferences/submission.ts';
import { TemplateError } from '../../preferences/template.ts';
import type { Json } from '../../profile/json.ts';
import { isUuid } from '../../profile/values.ts';
import type { Center } from '../../resources/preference-centers.ts';
import type { StoredUser } from '../../store/export.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { empty, MASK, pathWith, tree } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';
import { chooseUser, chosenUser } from './groups.ts';

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

/** @throws {PageError} if no workspace of the viewer contains the preference center */
async function findCenter(
  visit: Visit<PageServices>,
): Promise<{ center: PreferenceCenter; workspace: Workspace }> {
  const { services, workspaces, params } = visit;
  const id = params.id ?? '';
  const chosen = await chosenWorkspace(visit);
  const among = (chosen ? [chosen] : workspaces).map((one) => one.id);
  const center = isUuid(id)
    ? await services.database.prisma.preferenceCenter.findFirst({
        where: { id, workspaceId: { in: among } },
      })
    : null;
  const workspace = center ? await visit.findWorkspace(center.workspaceId) : undefined;
  if (!center || !workspace)
    throw new PageError(404, 'There is no such preference center in your workspaces.');
  return { center, workspace };
}

/** Renders the preview of a preference center, and its templates for viewers without the form that changes them. */
async function section(visit: Visit<PageServices>, center: Center): Promise<Html> {
  const { viewer, query } = visit;
  const workspace = { id: center.workspaceId, name: center.workspace.name };
  const { user, problem } = await chosenUser(visit, workspace);
  const path = `/preference-centers/${center.id}`;
  const shown = {
    screen: choice(screens, query('screen')),
    template: choice(templates, query('template')),
  };
  const named = { workspace: query('workspace') };
  const valid = user ? query('user') : undefined;
  const linkTo = (change: Partial<typeof shown>) =>
    pathWith(path, { ...named, ...shown, ...change, user: query('user') });
  const pii = viewer.can('pii', workspace.id);
  const mayEdit = viewer.can('edit_centers', workspace.id);
  return html`<h2 id="preview">Preview</h2>
${chooseUser(
  { viewer, query },
  {
    path: `${path}#preview`,
    workspace,
    problem,
    keep: { ...named, screen: shown.screen, template: shown.template },
  },
)}
<p class="lead">${user ? html`As ${query('user')} would see it now.${!pii && ' Without the permission “view_pii” values are masked, and custom attributes are omitted.'} ${closedFor(user, center)}` : 'With sample values, and every group subscribed. Choose a user to see it as this one would.'} Links and buttons in it have no effect, and images and styles of other hosts are omitted.</p>
${tabs('Screen', screens, { present: shown.screen, to: (screen) => linkTo({ screen }) })}
${tabs('Template', templates, { present: shown.template, to: (template) => linkTo({ template }) })}
<div class="scroll preview" role="region" aria-label="Preview" tabindex="0"><iframe class="${shown.screen}" sandbox="" referrerpolicy="no-referrer" title="${templates[shown.template]} of ${center.name}" src="${pathWith(`${path}/preview`, { ...named, template: shown.template, user: valid })}"></iframe></div>
${
  !mayEdit &&
  html`<h2>Options</h2>${optionsOf(center)}
<h2>Templates</h2>${source('Page', center.pageHtml ?? '')}${source('Confirmation', center.confirmationHtml ?? '')}`
}`;
}

/** Additions to the pages of preference centers: the preview. */
export const preferenceCenterExtras: Extras<Center> = { section };

/** Returns the reason why a link would not work for the user; undefined if it works. */
function closedFor({ external_id, email }: StoredUser, { state }: Center): Part {
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

function optionsOf({ options }: Center): Html {
  const given = options as Json;
  return Object.keys(given as object).length === 0
    ? empty('None', 'Options are elements of the head: the viewport, and links to icons.')
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
    const { user, problem } = await chosenUser(visit, workspace);
    if (problem !== undefined) throw new PageError(404, problem);
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

export const preferenceCenterPages = [preview];

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
