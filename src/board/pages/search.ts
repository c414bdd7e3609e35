import { withTimeout } from '../../platform/lifecycle.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { isUuid } from '../../profile/values.ts';
import { findAccountPage } from '../../store/accounts.ts';
import { readDeadLetter } from '../../store/dead-letter-actions.ts';
import { isAddress, parseUserSearch, searchUsers } from '../../store/profile-search.ts';
import { listDestinations, MAX_DESTINATIONS } from '../../store/stream-destinations.ts';
import { isPermitted, type Right, type Workspace } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, type Html, html, landingPath, menuPages, pathWith } from '../layout.ts';

/** Maximum length of the search text in characters. */
const MAX_QUERY = 320;

/** Minimum length of a part of a name. Shorter texts match only pages of the menu. */
const MIN_PART = 2;

/** Maximum number of results of one kind. */
const PER_KIND = 5;

/** Milliseconds after which the results of a kind are omitted. */
const KIND_MS = 1000;

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
  const hitsByKind = await Promise.all(
    [users, requests, ...namedKinds.map(finderOf), streams, accounts].map((find) =>
      withTimeout(KIND_MS, find(visit, text)).catch(() => undefined),
    ),
  );
  const omitted = hitsByKind.filter((hits) => hits === undefined).length;
  const localHits = [...pages(visit, text), ...ownWorkspaces(visit, text)];
  return { hits: [...localHits, ...hitsByKind.flatMap((hits) => hits ?? [])], omitted };
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

/** Finds users by a complete identifier. Viewers without the right `pii` cannot search by personal data. */
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
  const userLists = await Promise.all([searchIn(idsWith(true), whole), searchIn(idsWith(false), masked)]);
  const hits = userLists
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

/** Finds a request or a dead letter by id. Every request id has a page, also if no record of the request is kept. */
async function requests({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  const workspaces = viewer.workspacesWith('delivery');
  if (workspaces.length === 0 || !isUuid(text)) return [];
  const letter = await readDeadLetter(services.database.pool, text, 0);
  const isVisible = letter !== undefined && idsOf(workspaces).includes(letter.workspaceId);
  const hits = [{ title: text, kind: 'request', href: `/requests/${text}` }];
  return isVisible ? [{ title: text, kind: 'dead letter', href: `/dead-letters/${text}` }, ...hits] : hits;
}

type Prisma = PageServices['database']['prisma'];

/** A kind of entries with an id, a name and a workspace. */
interface NamedKind {
  kind: string;
  right: Right;
  path: string;
  find(prisma: Prisma, where: object): Promise<{ id: string; name: string; workspaceId: string }[]>;
}

const PAGE = {
  ...({ select: { id: true, name: true, workspaceId: true }, orderBy: { name: 'asc' } } as const),
  take: PER_KIND,
};

const namedKinds: NamedKind[] = [
  {
    ...{ kind: 'API key', right: 'keys', path: '/keys' },
    find: (prisma, where) => prisma.apiKey.findMany({ ...PAGE, where }),
  },
  {
    ...{ kind: 'segment', right: 'segments', path: '/segments' },
    find: (prisma, where) => prisma.segment.findMany({ ...PAGE, where }),
  },
  {
    ...{ kind: 'group', right: 'groups', path: '/groups' },
    find: (prisma, where) => prisma.subscriptionGroup.findMany({ ...PAGE, where }),
  },
  {
    ...{ kind: 'preference center', right: 'centers', path: '/preference-centers' },
    find: (prisma, where) => prisma.preferenceCenter.findMany({ ...PAGE, where }),
  },
  {
    ...{ kind: 'sync', right: 'syncs', path: '/syncs' },
    find: (prisma, where) => prisma.integration.findMany({ ...PAGE, where }),
  },
];

/** Creates a search for entries of a kind by a part of the name, or by id. */
const finderOf =
  ({ kind, right, path, find }: NamedKind) =>
  async ({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> => {
    const workspaces = viewer.workspacesWith(right);
    if (workspaces.length === 0 || text.length < MIN_PART) return [];
    const byName = { name: { contains: text, mode: 'insensitive' as const } };
    const rows = await find(services.database.prisma, {
      workspaceId: { in: idsOf(workspaces) },
      OR: [byName, ...(isUuid(text) ? [{ id: text }] : [])],
    });
    return rows.map(({ id, name, workspaceId }) => ({
      ...{ title: name, kind, where: whereOf(workspaces, workspaceId) },
      href: pathWith(`${path}/${id}`, { workspace: workspaces.length > 1 ? workspaceId : undefined }),
    }));
  };

const isNamed = ({ id, name }: { id: string; name: string }, text: string) =>
  id === text || name.toLowerCase().includes(text.toLowerCase());

async function streams({ services, viewer }: SearchVisit, text: string): Promise<Hit[]> {
  const workspaces = viewer.workspacesWith('syncs');
  if (workspaces.length === 0 || text.length < MIN_PART) return [];
  const all = await listDestinations(services.database.pool, { limit: MAX_DESTINATIONS });
  const matches = all.filter((one) => viewer.can('syncs', one.workspaceId) && isNamed(one, text));
  return matches.slice(0, PER_KIND).map(({ id, name, workspaceId }) => ({
    ...{ title: name, kind: 'stream', where: whereOf(workspaces, workspaceId), href: `/streams/${id}` },
  }));
}

function ownWorkspaces({ viewer }: SearchVisit, text: string): Hit[] {
  if (text.length < MIN_PART) return [];
  const matches = viewer.workspacesWith('usage').filter((one) => isNamed(one, text));
  const shown = matches.slice(0, PER_KIND);
  return shown.map(({ id, name }) => ({ title: name, kind: 'workspace', href: `/workspaces/${id}` }));
}

/** Finds accounts of the viewer's company by the beginning of the address. BOARD_USER searches all companies by the complete address. */
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
  const rows = await prisma.account.findMany({ where: { id: { in: page.map(({ id }) => id) } }, select });
  return rows.map(hitOf);
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
