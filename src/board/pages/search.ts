import { withTimeout } from '../../platform/lifecycle.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { isUuid } from '../../profile/values.ts';
import { findAccountPage } from '../../store/accounts.ts';
import { parseUserSearch, searchUsers } from '../../store/profile-search.ts';
import { listDestinations, MAX_DESTINATIONS } from '../../store/stream-destinations.ts';
import { isPermitted, type Right, type Workspace } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, type Html, html, landingPath, menuPages, pathWith } from '../layout.ts';
import { isAddress } from './users.ts';

/** Maximum length of the search text in characters. */
const MAX_QUERY = 320;

/** Minimum length of a part of a name. Shorter texts match only pages of the menu. */
const MIN_PART = 2;

/** Maximum number of results of one kind. */
const PER_KIND = 5;

/** Milliseconds after which the results of a kind are omitted. */
const KIND_MS = 500;

/** One search result. */
interface Hit {
  title: string;
  /** Kind of the result, for example `API key`. */
  kind: string;
  /** The workspace, if the viewer has several. */
  where?: string | undefined;
  href: string;
}

type SearchVisit = Visit<PageServices>;

/** Renders the search of the whole console. The script shows its results in a dialog. */
const search: Page<PageServices> = {
  method: 'get',
  path: '/search',
  right: 'anyone',
  async handle(visit) {
    const text = visit.query('q');
    if (text.length > MAX_QUERY)
      throw new PageError(400, `Search text can have at most ${MAX_QUERY} characters.`);
    const body = html`<h1>Search</h1>
<form class="row" method="get" action="/search" role="search">
<label class="grow">Page, user, request id, API key, segment, stream, workspace or account
<input type="search" name="q" value="${text}" maxlength="${MAX_QUERY}" autocomplete="off" autofocus></label>
<button class="main">Search</button></form>
<div id="found">${text !== '' && results(await findAll(visit, text))}</div>`;
    return { title: 'Search', body };
  },
};

function results({ hits, omitted }: { hits: Hit[]; omitted: number }): Html {
  return html`<p class="faint" role="status">${hits.length === 0 ? 'No results. Names are found by a part, ids and identifiers of users only in full.' : count(hits.length, 'result')}${omitted > 0 && ` Postgres did not answer in time for ${count(omitted, 'kind')}.`}</p>
<ul class="hits">${hits.map(({ title, kind, where, href }) => html`<li><a href="${href}"><span class="wrap">${title}</span> <span class="faint">${kind}${where !== undefined && ` in ${where}`}</span></a></li>`)}</ul>`;
}

async function findAll(visit: SearchVisit, text: string): Promise<{ hits: Hit[]; omitted: number }> {
  const found = await Promise.all(
    [users, requests, named, accounts].map((find) =>
      withTimeout(KIND_MS, find(visit, text)).catch(() => undefined),
    ),
  );
  const omitted = found.filter((hits) => hits === undefined).length;
  return { hits: [...pages(visit, text), ...found.flatMap((hits) => hits ?? [])], omitted };
}

function pages({ viewer }: SearchVisit, text: string): Hit[] {
  const part = text.toLowerCase();
  const own = [
    { path: '/sessions', name: 'Sessions' },
    { path: '/history', name: 'History' },
  ];
  return [...menuPages(viewer), ...own]
    .filter(({ name }) => name.toLowerCase().includes(part))
    .map(({ path, name }) => ({ title: name, kind: 'page', href: path }));
}

/** Finds users by a complete identifier. Without the right `pii`, only by one that is not personal data. */
async function users({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  const workspaces = viewer.workspacesWith('users');
  if (workspaces.length === 0) return [];
  const { pool } = services.database;
  const { prefix: _, aliasName: __, ...whole } = parseUserSearch(text);
  const masked = isAddress(text) ? undefined : { externalId: text, ...(whole.id && { id: whole.id }) };
  const idsWith = (pii: boolean) =>
    workspaces.map(({ id }) => id).filter((id) => viewer.can('pii', id) === pii);
  const searchIn = async (ids: string[], search: typeof whole | undefined) =>
    ids.length === 0 || !search ? [] : searchUsers(pool, ids, { search, limit: PER_KIND });
  const found = await Promise.all([searchIn(idsWith(true), whole), searchIn(idsWith(false), masked)]);
  const hits = found
    .flat()
    .slice(0, PER_KIND)
    .map((user) => {
      const pii = viewer.can('pii', user.workspaceId);
      const name = pii ? [user.firstName, user.lastName].filter(Boolean).join(' ') || user.email : undefined;
      const externalId =
        user.externalId !== null && (pii || !isAddress(user.externalId)) ? user.externalId : '';
      const serviceId = toServiceId(user.id);
      return {
        title: [name, externalId].filter(Boolean).join(', ') || serviceId,
        ...{ kind: 'user', where: whereOf(workspaces, user.workspaceId) },
        href: pathWith(`/users/${serviceId}`, {
          workspace: workspaces.length > 1 ? user.workspaceId : undefined,
        }),
      };
    });
  return [
    ...hits,
    { title: `Users matching “${text.slice(0, 80)}”`, kind: 'search', href: pathWith('/users', { q: text }) },
  ];
}

/** Finds a request or a dead letter by id. Every id has a page of its request, which says what is known about it. */
async function requests({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  const workspaces = viewer.workspacesWith('delivery');
  if (workspaces.length === 0 || !isUuid(text)) return [];
  const letter = await services.database.prisma.deadLetter.findFirst({
    where: { id: text, workspaceId: { in: idsOf(workspaces) } },
    select: { id: true },
  });
  const hits = [{ title: text, kind: 'request', href: `/requests/${text}` }];
  return letter ? [{ title: text, kind: 'dead letter', href: `/dead-letters/${text}` }, ...hits] : hits;
}

/** What each kind of named entries needs. All have an id and a name, and most belong to a workspace. */
interface NamedKind {
  kind: string;
  right: Right;
  path: string;
  find(where: object): Promise<{ id: string; name: string; workspaceId?: string }[]>;
}

/** Finds entries of workspaces by a part of their name, or by id. */
async function named({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  if (text.length < MIN_PART) return [];
  const { prisma } = services.database;
  const page = {
    select: { id: true, name: true, workspaceId: true },
    orderBy: { name: 'asc' },
    take: PER_KIND,
  } as const;
  const kinds: NamedKind[] = [
    {
      kind: 'API key',
      right: 'keys',
      path: '/keys',
      find: (where) => prisma.apiKey.findMany({ ...page, where }),
    },
    {
      kind: 'segment',
      right: 'segments',
      path: '/segments',
      find: (where) => prisma.segment.findMany({ ...page, where }),
    },
    {
      kind: 'group',
      right: 'groups',
      path: '/groups',
      find: (where) => prisma.subscriptionGroup.findMany({ ...page, where }),
    },
    {
      kind: 'preference center',
      right: 'centers',
      path: '/preference-centers',
      find: (where) => prisma.preferenceCenter.findMany({ ...page, where }),
    },
    {
      kind: 'sync',
      right: 'syncs',
      path: '/syncs',
      find: (where) => prisma.integration.findMany({ ...page, where }),
    },
  ];
  const matching = {
    OR: [{ name: { contains: text, mode: 'insensitive' as const } }, ...(isUuid(text) ? [{ id: text }] : [])],
  };
  const found = await Promise.all(
    kinds.map(async ({ kind, right, path, find }) => {
      const workspaces = viewer.workspacesWith(right);
      if (workspaces.length === 0) return [];
      const rows = await find({ workspaceId: { in: idsOf(workspaces) }, ...matching });
      return rows.map(({ id, name, workspaceId = '' }) => ({
        ...{ title: name, kind, where: whereOf(workspaces, workspaceId) },
        href: pathWith(`${path}/${id}`, { workspace: workspaces.length > 1 ? workspaceId : undefined }),
      }));
    }),
  );
  const part = text.toLowerCase();
  const matches = ({ id, name }: { id: string; name: string }) =>
    id === text || name.toLowerCase().includes(part);
  const ofStreams = viewer.workspacesWith('syncs');
  const streams =
    ofStreams.length === 0
      ? []
      : (await listDestinations(services.database.pool, { limit: MAX_DESTINATIONS }))
          .filter((one) => viewer.can('syncs', one.workspaceId) && matches(one))
          .slice(0, PER_KIND)
          .map(({ id, name, workspaceId }) => ({
            ...{ title: name, kind: 'stream', where: whereOf(ofStreams, workspaceId) },
            href: `/streams/${id}`,
          }));
  const workspaces = viewer.workspacesWith('usage').filter(matches);
  const own = workspaces
    .slice(0, PER_KIND)
    .map(({ id, name }) => ({ title: name, kind: 'workspace', href: `/workspaces/${id}` }));
  return [...found.flat(), ...streams, ...own];
}

/** Finds accounts of the viewer's company by the beginning of the address. BOARD_USER finds those of every company. */
async function accounts({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  if (!isPermitted(viewer, 'company') || text.length < MIN_PART) return [];
  const { pool, prisma } = services.database;
  const select = { id: true, userName: true } as const;
  if (viewer.companyId === undefined) {
    const one = await prisma.account.findFirst({ where: { email: text.toLowerCase() }, select });
    return one ? [hitOf(one)] : [];
  }
  const { page } = await findAccountPage(pool, viewer.companyId, {
    ...{ condition: { op: 'sw', column: 'userName', value: text }, limit: PER_KIND },
  });
  const found = await prisma.account.findMany({ where: { id: { in: page.map(({ id }) => id) } }, select });
  return found.map(hitOf);
}

const hitOf = ({ id, userName }: { id: string; userName: string }): Hit => ({
  ...{ title: userName, kind: 'account', href: `/accounts/${id}` },
});

const idsOf = (workspaces: Workspace[]) => workspaces.map(({ id }) => id);

const whereOf = (workspaces: Workspace[], workspaceId: string) =>
  workspaces.length > 1 ? workspaces.find(({ id }) => id === workspaceId)?.name : undefined;

/** Redirects to the first page of the viewer's role. */
const home: Page<PageServices> = {
  method: 'get',
  path: '/home',
  right: 'anyone',
  handle: async ({ viewer }) => ({ to: landingPath(viewer) }),
};

export const searchPages = [search, home];
