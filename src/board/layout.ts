import { count, duration, grouped } from '../platform/format.ts';
import { Html, html, type Part, pageHead } from '../platform/html.ts';
import type { Json } from '../profile/json.ts';
import { MASK } from '../profile/masked.ts';
import { entries, type MenuGroup } from '../resources/index.ts';
import type { Tone } from '../resources/resource.ts';
import type { PagePermit } from '../resources/rights.ts';
import { isPermitted, type Right, type Viewer, type Workspace } from './access.ts';
import { assetPath } from './files.ts';

export { count, duration };

interface NavigationPage {
  path: string;
  name: string;
  /** Permit that the page needs; absent if every user sees it. */
  permit?: PagePermit;
  /** Path of the page that has this page as a tab; absent for a line of the menu. */
  within?: string;
}

/** Pages that no description of a resource has, by group of the menu. They come first in their group. */
const specialPages: Record<MenuGroup, NavigationPage[]> = {
  Users: [
    { path: '/users', name: 'Users', permit: 'users' },
    { path: '/segments', name: 'Segments', permit: 'segments' },
  ],
  Data: [{ path: '/dead-letters', name: 'Dead letters', permit: 'delivery' }],
  Operate: [
    { path: '/', name: 'Health' },
    { path: '/queues', name: 'Queues' },
    { path: '/audit', name: 'Audit', permit: 'company' },
  ],
};

/** Pages in the navigation, in three groups. */
const navigation: { group: string; pages: NavigationPage[] }[] = Object.entries(specialPages).map(
  ([group, pages]) => ({
    group,
    pages: [...pages, ...entries.map(([, { menu }]) => menu).filter((one) => one.group === group)],
  }),
);

/** Tells whether the viewer may open a link of the console: `/dead-letters`, `/streams?state=failing`, `/#lanes`. */
export function mayOpen(viewer: Viewer, link: string): boolean {
  const [path = ''] = /^\/[^/?#]*/.exec(link) ?? [];
  const page = navigation.flatMap(({ pages }) => pages).find((one) => one.path === path);
  return isPermitted(viewer, page?.permit ?? 'anyone');
}

/** Tells whether the viewer has a permit in a workspace. A company administrator has it only in the company. */
export function isPermittedIn(viewer: Viewer, permit: PagePermit, workspaceId: string): boolean {
  return (
    isPermitted(viewer, permit, workspaceId) && (permit !== 'company' || viewer.can('users', workspaceId))
  );
}

/** Returns the pages of the menu that the viewer may open. */
export function menuPages(viewer: Viewer): { path: string; name: string }[] {
  const all = navigation.flatMap(({ pages }) => pages);
  return all.filter(({ permit = 'anyone' }) => isPermitted(viewer, permit));
}

/**
 * Returns the first page for the viewer's role: Health for operators and administrators, Requests for engineers, who
 * see API keys or only requests, and Users for support.
 */
export function landingPath(viewer: Viewer): string {
  const has = (right: Right) => viewer.workspacesWith(right).length > 0;
  if (viewer.full) return '/';
  if (has('delivery') && (has('keys') || !has('users'))) return '/requests';
  return has('users') ? '/users' : '/';
}

/** A number next to a page of the menu. */
export interface MenuBadge {
  text: string;
  /** Unit for screen readers, for example `problems`. */
  unit: string;
  tone: Tone;
}

export const menuBadge = ({ text, unit, tone }: MenuBadge) =>
  html` <span class="count ${tone}" title="${text} ${unit}">${text}<span class="unseen"> ${unit}</span></span>`;

interface Menu {
  isPresent(path: string): boolean;
  badges: Record<string, MenuBadge>;
}

/**
 * Renders the navigation groups that have at least one page for the viewer. A line is also current on the tabs of its
 * page.
 */
function menu(viewer: Viewer, { isPresent, badges }: Menu): Html[] {
  return navigation.flatMap(({ group, pages }) => {
    const permitted = pages.filter(({ permit = 'anyone' }) => isPermitted(viewer, permit));
    const open = permitted.filter(({ within }) => within === undefined);
    const hasPresentTab = (path: string) =>
      permitted.some((tab) => tab.within === path && isPresent(tab.path));
    if (open.length === 0) return [];
    const id = `menu-${group.toLowerCase()}`;
    return [
      html`<section><p class="group" id="${id}">${group}</p><ul aria-labelledby="${id}">${open.map(
        ({ path, name }) =>
          html`<li><a href="${path}"${(isPresent(path) || hasPresentTab(path)) && html` aria-current="${isPresent(path) ? 'page' : 'true'}"`}>${name}</a>${path === '/' ? html`<span data-live="problem_count">${badges[path] && menuBadge(badges[path])}</span>` : badges[path] && menuBadge(badges[path])}</li>`,
      )}</ul></section>`,
    ];
  });
}

/** Renders the pages that share a line of the menu as tabs; undefined if the line has a single page. */
function tabs(viewer: Viewer, { isPresent }: Pick<Menu, 'isPresent'>): Part {
  const all = navigation.flatMap(({ pages }) => pages);
  const present = all.find(({ path }) => isPresent(path));
  const line = all.find(({ path }) => path === (present?.within ?? present?.path));
  const open = all.filter(
    ({ path, within, permit = 'anyone' }) =>
      line !== undefined && [path, within].includes(line.path) && isPermitted(viewer, permit),
  );
  if (open.length < 2) return undefined;
  return html`<nav class="tabs" aria-label="${line!.name}">${open.map(
    ({ path, name }) =>
      html`<a class="tab" href="${path}"${isPresent(path) && html` aria-current="page"`}>${name}</a>`,
  )}</nav>`;
}

interface Shell {
  title: string;
  body: Html;
  /** Path of the request; determines which navigation link is marked as current. */
  path: string;
  /** Absent if the user is not signed in. */
  viewer?: Viewer | undefined;
  /** Numbers next to pages of the menu, by path. */
  badges?: Record<string, MenuBadge> | undefined;
  /** Result of the previous action. */
  notice?: string | undefined;
  /** Message at the top of every page that requires an operator to act. */
  alarm?: string | undefined;
  /** Seconds after which a script reloads the page. */
  refresh?: number | undefined;
}

/** Renders a complete HTML page. */
export function shell({ title, body, path, viewer, badges = {}, notice, alarm, refresh }: Shell): string {
  const isPresent = (page: string) =>
    path === page || (page === '/' ? path === '/history' : path.startsWith(`${page}/`));
  return html`<!doctype html>
<html lang="en">
${pageHead({ title, styles: [assetPath('console.css')], scripts: [assetPath('console.js')] })}
<body${viewer ? '' : html` class="plain"`}>
<a class="skip" href="#main">Skip to the content</a>
${
  viewer &&
  html`<header class="side">
<a class="brand" href="${landingPath(viewer)}">Penstock</a>
<a class="button find" href="/search" data-palette>Search <kbd>/</kbd></a>
<button type="button" class="menu-button" popovertarget="menu">Menu</button>
<div class="menu" id="menu" popover>
<nav aria-label="Pages">${menu(viewer, { isPresent, badges })}</nav>
<div class="who"><button type="button" class="quiet" data-theme-toggle hidden>Theme</button>
<button type="button" class="quiet" data-times-toggle hidden>Relative or full times</button>
<a href="/sessions">Sessions</a> <a href="/sign-out" title="${viewer.user}">Sign out</a></div>
</div>
</header>`
}
<main id="main" tabindex="-1"${refresh !== undefined && html` data-refresh="${refresh}"`}>
${alarm !== undefined && html`<p class="banner bad" role="alert">${alarm}</p>`}
${notice !== undefined && html`<p class="banner good" role="status">${notice}</p>`}
${viewer && tabs(viewer, { isPresent })}
${body}
</main>
</body>
</html>
`.text;
}

/**
 * Notices that a page shows after an action, by the value of `?done=`. A fixed list, so that a link cannot inject text.
 */
const notices: Record<string, string> = {
  replayed: 'Enqueued again. If an object fails again, it comes back with the new reason.',
  discarded: 'Discarded. The dead letter stays under “Discarded” with your reason.',
  nothing: 'No change: the dead letters were not waiting any more.',
  deleted: 'The delete was accepted. It takes effect after everything that was accepted before.',
  as_before: 'No change: the value was already set.',
  named: 'Created. Clients use the id below.',
  changed: 'Changed.',
  archived: 'Archived. It can no longer be used, and its name stays reserved.',
  forgotten: 'Silent processes were removed from the list.',
  confirmed: 'The loss is confirmed. The message ends within seconds.',
  revoked: 'Revoked permanently. New links work.',
  ended: 'Session ended. Its user must sign in again.',
  nothing_ended: 'No change: the session had already ended, or you are not allowed to end it.',
};

export const noticeOf = (done: string): string | undefined =>
  Object.hasOwn(notices, done) ? notices[done] : undefined;

/**
 * Renders a time in UTC. A script shows how long ago it is, with the full time in the reader's time zone in the title.
 * @param options.accepted time at which it was accepted, for the title
 */
export function moment(at: Date | string | null | undefined, { accepted }: { accepted?: Date } = {}): Html {
  if (at === null || at === undefined) return html`<span class="faint">never</span>`;
  const iso = new Date(at).toISOString();
  const more = accepted ? `, accepted ${utc(accepted.toISOString())}` : '';
  return html`<time datetime="${iso}" title="${utc(iso)}${more}"${accepted && html` data-title="${more}"`}>${utc(iso)}</time>`;
}

/** Renders a time in UTC. A script converts it to the reader's time zone, but does not shorten it. */
export function fullTime(at: Date | string): Html {
  const iso = new Date(at).toISOString();
  return html`<time datetime="${iso}" title="${utc(iso)}" data-full>${utc(iso)}</time>`;
}

const utc = (iso: string) => `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;

/** Number of characters that remain visible at the end of a shortened UUID. They are random; the beginning is a time. */
const UUID_END = 12;

/**
 * Renders a UUID. Tables shorten it in the middle by CSS, so that a selection still has the whole text. A script adds a
 * button that copies it.
 */
export function uuid(id: string, href?: string): Html {
  const text = html`<span class="uuid-start">${id.slice(0, -UUID_END)}</span>${id.slice(-UUID_END)}`;
  return html`<span class="uuid" data-copy="${id}">${href === undefined ? html`<span class="id">${text}</span>` : html`<a class="id" href="${href}">${text}</a>`}</span>`;
}

export const badge = (text: string, tone: Tone = 'calm') => html`<span class="badge ${tone}">${text}</span>`;

/** Renders a placeholder for an empty list, with a hint at the next step. */
export function empty(title: string, hint: Part): Html {
  return html`<div class="empty"><p><strong>${title}</strong></p><p>${hint}</p></div>`;
}

/** A column heading. Number columns are right-aligned. */
export type Column = string | { name: string; number: true };

/**
 * Renders a table. On a narrow screen, each row is a card and each cell has the name of its column. A table that is
 * wider than a wide screen scrolls.
 */
export function table(caption: string, columns: Column[], rows: Part[][]): Html {
  const isNumber = columns.map((column) => typeof column !== 'string');
  const names = columns.map((column) => (typeof column === 'string' ? column : column.name));
  const head = columns.map((column) =>
    typeof column === 'string'
      ? html`<th scope="col">${column}</th>`
      : html`<th scope="col" class="number">${column.name}</th>`,
  );
  const body = rows.map(
    (cells) =>
      html`<tr>${cells.map((cell, index) => html`<td data-label="${names[index]}"${isNumber[index] && html` class="number"`}>${cell}</td>`)}</tr>`,
  );
  return html`<div class="scroll" role="region" aria-label="${caption}" tabindex="0"><table>
<thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** Renders name and value pairs. Pairs with an empty value are omitted. */
export function facts(pairs: [name: string, value: Part][]): Html {
  const given = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return html`<dl class="facts">${given.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** Renders a link to the next page. */
export function nextPage(path: string, query: Record<string, string | undefined>, text = 'Older'): Html {
  return html`<p class="pager"><a rel="next" href="${pathWith(path, query)}">${text}</a></p>`;
}

/** Appends the non-empty query parameters to a path. */
export function pathWith(path: string, query: Record<string, string | undefined>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** Maximum number of options in a select. For more workspaces, the user types the name or id. */
const MAX_OPTIONS = 200;

/**
 * Renders a workspace selection; undefined if there are fewer than two workspaces.
 * @param list id of the list of suggestions, unique on the page
 */
export function workspaceChoice(
  workspaces: Workspace[],
  chosen: Workspace | undefined,
  { mayBeAll = true, list = 'workspaces' } = {},
): Part {
  if (workspaces.length < 2) return undefined;
  if (workspaces.length > MAX_OPTIONS)
    return html`<label>Workspace, by name or id <input name="workspace" list="${list}" value="${chosen?.name}" autocomplete="off"><datalist id="${list}">${workspaces
      .slice(0, MAX_OPTIONS)
      .map(({ name }) => html`<option value="${name}"></option>`)}</datalist></label>`;
  return html`<label>Workspace <select name="workspace">${mayBeAll && html`<option value="">All</option>`}${workspaces.map(
    ({ id, name }) => html`<option value="${id}"${id === chosen?.id && html` selected`}>${name}</option>`,
  )}</select></label>`;
}

/** Maximum nodes per tree and characters per text. A profile can have a megabyte. */
const MAX_NODES = 400;
const MAX_CHARACTERS = 400;

/**
 * Renders JSON as a tree that expands and collapses without script.
 *
 * @param masked shows member names without values
 * @param most maximum number of nodes
 */
export function tree(value: Json, { masked = false, most: max = MAX_NODES } = {}): Html {
  let left = max;
  const scalar = (one: Json): Html => {
    if (masked) return html`<span class="faint">${MASK}</span>`;
    if (typeof one !== 'string') return html`<code>${JSON.stringify(one)}</code>`;
    const more = one.length - MAX_CHARACTERS;
    return html`<span class="text">${one.slice(0, MAX_CHARACTERS)}</span>${more > 0 && html` <span class="faint">and ${count(more, 'character')} more</span>`}`;
  };
  const node = (name: string, one: Json, depth: number): Html => {
    if (typeof one !== 'object' || one === null)
      return html`<li><span class="key">${name}</span> ${scalar(one)}</li>`;
    const members = Array.isArray(one)
      ? one.map((item, index) => [String(index), item] as const)
      : Object.entries(one);
    const size = count(members.length, Array.isArray(one) ? 'element' : 'member');
    return html`<li><details${depth === 0 && html` open`}><summary><span class="key">${name}</span> <span class="faint">${size}</span></summary>${list(members, depth + 1)}</details></li>`;
  };
  const list = (members: (readonly [string, Json])[], depth: number): Html => {
    const shown = members.slice(0, Math.max(0, left));
    left -= shown.length;
    const more = members.length - shown.length;
    return html`<ul class="tree">${shown.map(([name, one]) => node(name, one, depth))}${more > 0 && html`<li class="faint">and ${grouped(more)} more</li>`}</ul>`;
  };
  if (typeof value !== 'object' || value === null) return scalar(value);
  return list(
    Array.isArray(value) ? value.map((one, index) => [String(index), one] as const) : Object.entries(value),
    0,
  );
}

/** Matches values that a spreadsheet would evaluate as a formula. */
const FORMULA = /^[=+\-@\t\r\n]/;

/** Formats a CSV line (RFC 4180) and escapes values that a spreadsheet would evaluate as a formula. */
export function csvLine(values: readonly unknown[]): string {
  const written = values.map((value) => {
    const text = String(value ?? '');
    const safe = FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  });
  return `${written.join(',')}\r\n`;
}

/** Characters at the end of a text among which `cutAtWord` looks for the end of a word. */
const LAST_WORD = 40;

/** Cuts the beginning of a longer text after a whole word and appends an ellipsis. */
export function cutAtWord(beginning: string): string {
  const end = beginning.search(/\s+\S*$/);
  return `${beginning.length - end <= LAST_WORD && end > 0 ? beginning.slice(0, end) : beginning}…`;
}

/** Formats JSON as one shortened line, for a table cell. */
export function brief(value: Json, max = 160): string {
  const text = JSON.stringify(value) ?? '';
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

export { Html, html, MASK };
