import { html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { isSearchable, searchWords } from '../../profile/search-text.ts';
import { isUuid } from '../../profile/values.ts';
import {
  type FoundUser,
  isAddress,
  isPhoneLike,
  newestUsers,
  parseUserSearch,
  searchUsers,
  type UserSearch,
} from '../../store/profile-search.ts';
import {
  isSearchFilled,
  listUsers,
  MAX_FOUND,
  SearchTooBroad,
  searchParts,
  type UserFilters,
} from '../../store/user-search.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import {
  count,
  empty,
  MASK,
  mayOpen,
  moment,
  nextPage,
  pathWith,
  table,
  workspaceChoice,
} from '../layout.ts';

/** Users per page. */
const PAGE = 50;

/** Maximum number of workspaces that a search by parts or a list with pages includes. */
const MAX_WORKSPACES = 10;

/** Maximum length of a search in characters. Identifiers are shorter. */
const MAX_QUERY = 1000;

/**
 * Creates the search of a viewer who may not see personal data: only complete identifiers that are not personal data.
 */
export function maskedSearch(text: string): UserSearch | undefined {
  if (isAddress(text)) return undefined;
  const { id } = parseUserSearch(text);
  return { ...(id !== undefined && { id }), externalId: text };
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

/** Email states by which users can be filtered. */
const EMAIL_STATES = ['subscribed', 'unsubscribed', 'opted_in'] as const;

/** Reads the filters of the query. @throws {PageError} for a state or day that does not exist */
function readFilters(query: (name: string) => string): UserFilters {
  const [state, after] = [query('email_state'), query('created_after')];
  const email = EMAIL_STATES.find((one) => one === state);
  if (state !== '' && !email)
    throw new PageError(400, `'email_state' must be one of: ${EMAIL_STATES.join(', ')}.`);
  const day = new Date(`${after}T00:00:00Z`);
  if (after !== '' && (!/^\d{4}-\d\d-\d\d$/.test(after) || Number.isNaN(day.getTime())))
    throw new PageError(400, "'created_after' must be a day, for example 2026-11-01.");
  return {
    ...(query('has_email') !== '' && { hasEmail: true }),
    ...(query('has_phone') !== '' && { hasPhone: true }),
    ...(email && { email }),
    ...(after !== '' && { createdAfter: day }),
  };
}

interface Search {
  text: string;
  filters: UserFilters;
  workspaces: Workspace[];
  /** Id of the last user of the previous page. */
  before: string | undefined;
}

interface Found {
  /** Users with exactly this identifier, on the first page only. */
  exact: FoundUser[];
  users: FoundUser[];
  /** Number of all users that were found; MAX_FOUND + 1 means more. Absent if they were not counted. */
  total?: number;
  /** The page ends before this user. Absent on the last page. */
  next?: string | undefined;
  /** The page ended because many users were looked at. */
  isPart?: boolean;
}

const newestFirst = (one: FoundUser, other: FoundUser) => (one.id < other.id ? 1 : -1);

async function find(services: PageServices, viewer: Viewer, search: Search): Promise<Found> {
  const { text, filters, workspaces, before } = search;
  const { pool } = services.database;
  const ids = workspaces.map(({ id }) => id);
  if (text === '')
    return ids.length > MAX_WORKSPACES
      ? { exact: [], users: await newestUsers(pool, ids, PAGE) }
      : listPage(services, ids, { words: [], filters, before });
  const open = ids.filter((id) => viewer.can('pii', id));
  const closed = ids.filter((id) => !viewer.can('pii', id));
  const isFiltered = Object.keys(filters).length > 0;
  const searchIn = (among: string[], wanted: UserSearch | undefined) =>
    among.length === 0 || !wanted ? [] : searchUsers(pool, among, { search: wanted, limit: PAGE });
  const { prefix, ...identifiers } = parseUserSearch(text);
  const [exact, masked] = await Promise.all([
    isFiltered
      ? []
      : searchIn(open, open.length > MAX_WORKSPACES ? { ...identifiers, prefix: text } : identifiers),
    isFiltered ? [] : searchIn(closed, maskedSearch(text)),
  ]);
  const shown = [...exact, ...masked].slice(0, PAGE);
  const isExact = new Set(shown.map(({ id }) => id));
  if (open.length === 0 || open.length > MAX_WORKSPACES)
    return { exact: shown, users: [], total: shown.length };
  const words = isPhoneLike(text) ? [text.replace(/\D/g, '')] : searchWords(text);
  const parts = await Promise.all(
    open.map((workspaceId) => searchParts(pool, { workspaceId, words, filters, prefix: text })),
  );
  const rest = parts
    .flat()
    .filter(({ id }) => !isExact.has(id))
    .sort(newestFirst);
  const isFirst = before === undefined;
  const total = Math.min(MAX_FOUND + 1, rest.length + shown.length);
  if (total > MAX_FOUND && isSearchable(words)) {
    const page = await listPage(services, open, { words, filters, before });
    const users = page.users.filter(({ id }) => !isExact.has(id));
    return { ...page, users, exact: isFirst ? shown : [], total };
  }
  const later = before === undefined ? rest : rest.filter(({ id }) => id < before);
  const { rows: users, next } = takePage(later, PAGE, ({ id }) => id);
  return {
    ...{ exact: isFirst ? shown : [], users, total },
    ...(next !== null && { next }),
  };
}

/** Returns a page of the users of these workspaces, newest first. */
async function listPage(
  { database: { pool } }: PageServices,
  workspaceIds: string[],
  { words, filters, before }: Pick<Search, 'filters' | 'before'> & { words: string[] },
): Promise<Found> {
  const lists = await Promise.all(
    workspaceIds.map((workspaceId) =>
      listUsers(pool, { workspaceId, words, filters }, { before, limit: PAGE + 1 }),
    ),
  );
  // Users after this one have not been looked at in every workspace.
  const [boundary] = lists
    .flatMap(({ looked }) => looked ?? [])
    .sort()
    .reverse();
  const all = lists
    .flatMap(({ users }) => users)
    .filter(({ id }) => boundary === undefined || id >= boundary)
    .sort(newestFirst);
  const { rows: users, next } = takePage(all, PAGE, ({ id }) => id);
  return {
    ...{ exact: [], users, next: next ?? boundary },
    ...(next === null && boundary !== undefined && { isPart: true }),
  };
}

const search: Page<PageServices> = {
  method: 'get',
  path: '/users',
  right: 'users',
  async handle(visit) {
    const { services, viewer, workspaces, query } = visit;
    const text = query('q');
    if (text.length > MAX_QUERY)
      throw new PageError(400, `Search text can have at most ${MAX_QUERY} characters.`);
    const chosen = await chosenWorkspace(visit);
    const among = chosen ? [chosen] : workspaces;
    const filters = readFilters(query);
    const before = isUuid(query('before')) ? query('before') : undefined;
    const matches = await find(services, viewer, { text, filters, workspaces: among, before }).catch(
      (error) => {
        if (!(error instanceof SearchTooBroad)) throw error;
        throw new PageError(
          503,
          'The search took too long. Enter more characters, choose a workspace, or remove a filter.',
        );
      },
    );
    const open = among.filter(({ id }) => viewer.can('pii', id));
    const isByParts = text !== '' && open.length > 0;
    const body = html`<h1>Users</h1>
<form method="get" action="/users" role="search"><div class="row">
<label class="grow">Name, email, phone, external id or alias, or a part of one; or service id
<input type="search" name="q" value="${text}" maxlength="${MAX_QUERY}"${text === '' && html` autofocus`}></label>
${workspaceChoice(workspaces, chosen)}
<button class="main">Search</button></div>
<div class="row">${filterFields(query)}</div></form>
${open.length < among.length && html`<p class="lead">Without the permission “view_pii” users are found by their external id in full, or by their service id; names and addresses are masked.</p>`}
${isByParts && open.length > MAX_WORKSPACES && html`<p class="banner warn">Choose a workspace to search by a part of a name or identifier. In more than ${MAX_WORKSPACES} workspaces, only whole identifiers and the start of an external id are searched.</p>`}
${isByParts && !(await isSearchFilled(services.database)) && html`<p class="banner warn">The index of names is still being filled, so parts of names and identifiers do not find all users yet. Whole identifiers do.</p>`}
${results(visit, { ...matches, text, isFiltered: Object.keys(filters).length > 0 })}`;
    return { title: 'Users', body };
  },
};

/** Names of the filters in the query. */
const FILTERS = ['has_email', 'has_phone', 'email_state', 'created_after'];

function filterFields(query: (name: string) => string): Part {
  const box = (name: string, text: string) =>
    html`<label class="check"><input type="checkbox" name="${name}" value="yes"${query(name) !== '' && html` checked`}> ${text}</label>`;
  return html`${box('has_email', 'Has an email')} ${box('has_phone', 'Has a phone')}
<label>Email state <select name="email_state"><option value="">Any</option>${EMAIL_STATES.map(
    (state) =>
      html`<option value="${state}"${state === query('email_state') && html` selected`}>${state.replace('_', ' ')}</option>`,
  )}</select></label>
<label>Created on or after <input type="date" name="created_after" value="${query('created_after')}"></label>`;
}

type Results = Found & { text: string; isFiltered: boolean };

function results(
  { viewer, workspaces, query }: Visit<PageServices>,
  { exact, users, total, next, isPart, text, isFiltered }: Results,
): Part {
  const kept = Object.fromEntries(['q', 'workspace', ...FILTERS].map((name) => [name, query(name)]));
  const pager = next !== undefined && nextPage('/users', { ...kept, before: next }, 'Next page');
  const listed = [...exact, ...users];
  const isFirst = query('before') === '';
  if (listed.length === 0 && isPart)
    return html`${empty('None so far', 'No user that this page looked at matches. “Next page” continues with older users.')}${pager}`;
  if (listed.length === 0 && text === '' && !isFiltered && isFirst)
    return empty(
      'No users yet',
      html`Clients send users with an API key. They appear here as soon as they are applied. ${mayOpen(viewer, '/keys') && html`<a href="/keys#create">Create an API key</a>`}`,
    );
  if (listed.length === 0)
    return empty(
      text === '' ? 'No user matches' : `No user found for “${text.slice(0, 80)}”`,
      'Every word must be part of a name or identifier of the user. Case is ignored, except in service ids. New and changed names are found after a few minutes, whole identifiers immediately. Objects that were just sent may still wait in the queue: see Health.',
    );
  const names = new Map(workspaces.map(({ id, name }) => [id, name]));
  const several = workspaces.length > 1;
  const rows = listed.map((user) => {
    const pii = viewer.can('pii', user.workspaceId);
    const mask = (value: string | null) => (value === null ? '' : pii ? value : MASK);
    const name = [user.firstName, user.lastName].filter(Boolean).join(' ');
    const id =
      user.externalId !== null && (pii || !isAddress(user.externalId))
        ? user.externalId
        : toServiceId(user.id);
    return [
      ...(pii && name !== ''
        ? [
            html`<a class="wrap" href="${userPath(viewer, user)}">${name}</a>`,
            html`<span class="id">${id}</span>`,
          ]
        : [
            name === '' ? html`<span class="faint">none</span>` : MASK,
            html`<a class="id" href="${userPath(viewer, user)}">${id}</a>`,
          ]),
      html`<span class="wrap">${mask(user.email)}</span>`,
      mask(user.phone),
      ...(several ? [names.get(user.workspaceId)] : []),
      moment(user.createdAt),
    ];
  });
  const caption =
    text === ''
      ? isFiltered
        ? 'Matching users, newest first'
        : 'Newest users'
      : captionOf(total ?? listed.length);
  return html`<h2>${caption}</h2>${table(
    'Users',
    ['Name', 'External or service id', 'Email', 'Phone', ...(several ? ['Workspace'] : []), 'Created'],
    rows,
  )}${pager}`;
}

const captionOf = (total: number) =>
  total > MAX_FOUND ? `More than ${count(MAX_FOUND, 'user')} found` : `${count(total, 'user')} found`;

export const userListPages = [search];
