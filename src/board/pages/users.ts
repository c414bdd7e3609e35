import { html, type Part } from '../../platform/html.ts';
import { toServiceId } from '../../profile/identifier.ts';
import {
  type FoundUser,
  isPhoneLike,
  newestUsers,
  parseUserSearch,
  searchUsers,
  type UserSearch,
} from '../../store/profile-search.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices } from '../console.ts';
import { empty, MASK, moment, pathWith, table, workspaceChoice } from '../layout.ts';

/** Users per page. For a user further down, refine the search. */
const PAGE = 50;

/** Number of newest users shown before a search. */
const NEWEST = 20;

/** Maximum length of a search in characters. Identifiers are shorter. */
const MAX_QUERY = 1000;

/**
 * Creates the search of a viewer who may not see personal data: only complete identifiers that are not personal data.
 */
function maskedSearch(text: string): UserSearch | undefined {
  if (isAddress(text)) return undefined;
  const { id } = parseUserSearch(text);
  return { ...(id !== undefined && { id }), externalId: text };
}

/** Whether a text looks like an email address or phone number. Such a text is personal data even as an external id. */
export function isAddress(text: string): boolean {
  return text.includes('@') || isPhoneLike(text);
}

/** Renders an external id, masked if the viewer may not see it. */
export function shownExternalId(externalId: string | null, pii: boolean): Part {
  if (externalId === null) return html`<span class="faint">none</span>`;
  return !pii && isAddress(externalId) ? MASK : externalId;
}

/** Returns the path of a user's page. It includes the workspace if the viewer has several. */
export function userPath(viewer: Viewer, { id, workspaceId }: { id: string; workspaceId: string }): string {
  const isOne = viewer.workspacesWith('users').length < 2;
  return pathWith(`/users/${toServiceId(id)}`, isOne ? {} : { workspace: workspaceId });
}

async function find(
  { database: { pool } }: PageServices,
  viewer: Viewer,
  { text, workspaces }: { text: string; workspaces: Workspace[] },
): Promise<FoundUser[]> {
  const ids = workspaces.map(({ id }) => id);
  if (text === '') return newestUsers(pool, ids, NEWEST);
  const open = ids.filter((id) => viewer.can('pii', id));
  const closed = ids.filter((id) => !viewer.can('pii', id));
  const searchIn = (among: string[], search: UserSearch | undefined) =>
    among.length === 0 || !search ? [] : searchUsers(pool, among, { search, limit: PAGE });
  const found = await Promise.all([
    searchIn(open, parseUserSearch(text)),
    searchIn(closed, maskedSearch(text)),
  ]);
  return found.flat().slice(0, PAGE);
}

const search: Page<PageServices> = {
  method: 'get',
  path: '/users',
  right: 'users',
  async handle({ services, viewer, workspaces, findWorkspace, query }) {
    const text = query('q');
    if (text.length > MAX_QUERY)
      throw new PageError(400, `Search text can have at most ${MAX_QUERY} characters.`);
    const chosen = await chosenWorkspace({ findWorkspace, query });
    const among = chosen ? [chosen] : workspaces;
    const found = await find(services, viewer, { text, workspaces: among });
    const isMasked = among.some(({ id }) => !viewer.can('pii', id));
    const body = html`<h1>Users</h1>
<form class="row" method="get" action="/users" role="search">
<label class="grow">External id or what it begins with, alias, email, phone, or service id
<input type="search" name="q" value="${text}" maxlength="${MAX_QUERY}"${text === '' && html` autofocus`}></label>
${workspaceChoice(workspaces, chosen)}
<button class="main">Look up</button></form>
${isMasked && html`<p class="lead">Without the permission “view_pii” users are found by their external id in full, or by their service id; names and addresses are masked.</p>`}
${results(viewer, { found, text, several: workspaces.length > 1, names: new Map(workspaces.map(({ id, name }) => [id, name])) })}`;
    return { title: 'Users', body };
  },
};

interface Results {
  found: FoundUser[];
  text: string;
  several: boolean;
  names: Map<string, string>;
}

function results(viewer: Viewer, { found, text, several, names }: Results): Part {
  if (found.length === 0 && text === '')
    return empty(
      'No users yet',
      html`Send some to <code>POST /users/track</code>; they appear here as soon as they are applied.`,
    );
  if (found.length === 0)
    return empty(
      `No user found for “${text.slice(0, 80)}”`,
      'Case counts in external ids and aliases. An alias may be written as label:name. A user who was just sent may still wait in the queue. The first page shows how many jobs wait.',
    );
  const rows = found.map((user) => {
    const pii = viewer.can('pii', user.workspaceId);
    const mask = (value: string | null) => (value === null ? '' : pii ? value : MASK);
    const name = [user.firstName, user.lastName].filter(Boolean).join(' ');
    return [
      html`<a class="id" href="${userPath(viewer, user)}">${user.externalId === null ? toServiceId(user.id) : pii || !isAddress(user.externalId) ? user.externalId : toServiceId(user.id)}</a>`,
      name === '' ? '' : mask(name),
      html`<span class="wrap">${mask(user.email)}</span>`,
      mask(user.phone),
      ...(several ? [names.get(user.workspaceId)] : []),
      moment(user.createdAt),
      moment(user.updatedAt),
    ];
  });
  const caption = text === '' ? 'Newest users' : 'Users found';
  return html`<h2>${caption}</h2>${table(
    caption,
    ['User', 'Name', 'Email', 'Phone', ...(several ? ['Workspace'] : []), 'Made', 'Updated'],
    rows,
  )}${found.length === PAGE && html`<p class="faint pager">The first ${PAGE} are shown. Enter more of the text to narrow the search.</p>`}`;
}

export const userListPages = [search];
