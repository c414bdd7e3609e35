import { html, type Part } from '../../platform/html.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { findLinkUser } from '../../store/preference-centers.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, lacking, type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { badge, empty, moment, pathWith, table, workspaceChoice } from '../layout.ts';
import { isAddress } from './users.ts';

/** Groups on one page. */
const PAGE = 100;

/** Characters: the longest external id is shorter. */
const MAX_USER = 1000;

/** The workspace that the page is about: the first one, where none is chosen. */
export async function presentWorkspace(
  visit: Pick<Visit<PageServices>, 'workspaces' | 'query' | 'findWorkspace'>,
): Promise<Workspace> {
  return (await chosenWorkspace(visit)) ?? visit.workspaces[0]!;
}

/** A form that asks for a workspace and a user; what else the address holds stays. */
export function chooseUser(
  { workspaces, viewer, query }: Pick<Visit<PageServices>, 'workspaces' | 'viewer' | 'query'>,
  { path, workspace, keep = {} }: { path: string; workspace: Workspace; keep?: Record<string, string> },
): Part {
  const maySee = viewer.can('users', workspace.id);
  if (!maySee && workspaces.length < 2) return undefined;
  return html`<form class="row" method="get" action="${path}">
${workspaceChoice(workspaces, workspace, { mayBeAll: false })}
${maySee && html`<label class="grow">For a user: external id <input type="search" name="user" value="${query('user')}" maxlength="${MAX_USER}"></label>`}
${Object.entries(keep).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<button class="main">Show</button></form>`;
}

/**
 * The user whom the address names by an external id; undefined: nobody is named.
 * @throws {Sorry} when there is none, or the viewer may not look at users
 */
export async function chosenUser(
  { services, viewer, query }: Pick<Visit<PageServices>, 'services' | 'viewer' | 'query'>,
  { id: workspaceId }: Workspace,
): Promise<StoredUser | undefined> {
  const externalId = query('user');
  if (externalId === '') return undefined;
  if (!viewer.can('users', workspaceId)) throw lacking('users');
  const { pool } = services.database;
  // As a search: what would tell who somebody is confirms nothing without the right to see that.
  const isOpen = viewer.can('pii', workspaceId) || !isAddress(externalId);
  const found =
    isOpen && externalId.length <= MAX_USER ? await findLinkUser(pool, workspaceId, externalId) : undefined;
  const [user] = found
    ? await readProfiles(pool, workspaceId, {
        ids: [found.id],
        fields: ['custom_attributes', 'subscription_groups'],
      })
    : [];
  if (!user)
    throw new Sorry(
      404,
      'No user of the workspace has this external id. Upper and lower case are different.',
    );
  return user;
}

/** What the user has said of a group; `undefined` where nobody is chosen. */
function stateOf(user: StoredUser, id: string): Part {
  const told = user.subscription_groups?.find((one) => one.id === id);
  if (!told) return html`<span class="faint">no state</span>`;
  const state = told.status.toLowerCase();
  return badge(state, state === 'subscribed' ? 'good' : 'bad');
}

const list: Page<PageServices> = {
  method: 'get',
  path: '/groups',
  right: 'groups',
  async handle(visit) {
    const { services, viewer, query } = visit;
    const workspace = await presentWorkspace(visit);
    const user = await chosenUser(visit, workspace);
    const after = query('after');
    const groups = await services.database.prisma.subscriptionGroup.findMany({
      where: { workspaceId: workspace.id, ...(after !== '' && { name: { gt: after } }) },
      orderBy: { name: 'asc' },
      take: PAGE + 1,
    });
    const shown = groups.slice(0, PAGE);
    const where = { workspace: workspace.id, user: query('user') };
    const body = html`<h1>Groups</h1>
<p class="lead">Subscription groups of the workspace ${workspace.name}: what users subscribe to and unsubscribe from. Clients send the id as <code>subscription_group_id</code>.</p>
${chooseUser(visit, { path: '/groups', workspace })}
${user && html`<p class="lead">With the states of ${query('user')}: those of this user's address where the group is about addresses.</p>`}
${
  shown.length === 0
    ? nothing(workspace, after)
    : table(
        `Groups of ${workspace.name}`,
        ['Group', 'Id', 'Channel', 'State', ...(user ? ['Of the user'] : []), 'Made'],
        shown.map(({ id, name, channel, archivedAt, createdAt }) => [
          html`<span class="wrap">${name}</span>`,
          html`<span class="id">${id}</span>`,
          channel,
          archivedAt ? html`${badge('archived')} ${moment(archivedAt)}` : badge('in use', 'good'),
          ...(user ? [stateOf(user, id)] : []),
          moment(createdAt),
        ]),
      )
}
${groups.length > PAGE && html`<p class="pager"><a rel="next" href="${pathWith('/groups', { ...where, after: shown.at(-1)!.name })}">More</a></p>`}
${centersOf(viewer, workspace)}`;
    return { title: 'Groups', body };
  },
};

function nothing({ name }: Workspace, after: string): Part {
  if (after !== '') return empty('No more groups', html`<a href="/groups">The first ones</a>`);
  return empty(
    'No subscription group yet',
    html`Create one: <code>penstock groups create --workspace ${name} --name News --channel email</code>.`,
  );
}

const centersOf = (viewer: Viewer, { id }: Workspace): Part =>
  viewer.can('centers', id) &&
  html`<p class="faint pager">Users choose in <a href="${pathWith('/preference-centers', { workspace: id })}">preference centers</a>.</p>`;

export const groupPages = [list];
