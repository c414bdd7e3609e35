import { html, type Part } from '../../platform/html.ts';
import type { Group } from '../../resources/groups.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { findLinkUser } from '../../store/preference-centers.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, lacking, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, pathWith, workspaceChoice } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';
import { isAddress } from './users.ts';

/** Maximum length of the search text in characters. External ids are shorter. */
const MAX_USER = 1000;

/** Returns the workspace of the page: the selected one, or the first. */
export async function presentWorkspace(
  visit: Pick<Visit<PageServices>, 'workspaces' | 'query' | 'findWorkspace'>,
): Promise<Workspace> {
  return (await chosenWorkspace(visit)) ?? visit.workspaces[0]!;
}

/** Renders a form to select a workspace and a user. Other query parameters in `keep` are preserved. */
export function chooseUser(
  { workspaces, viewer, query }: Pick<Visit<PageServices>, 'workspaces' | 'viewer' | 'query'>,
  { path, workspace, keep = {} }: { path: string; workspace: Workspace; keep?: Record<string, string> },
): Part {
  const user = userField({ viewer, query }, workspace);
  if (!user && workspaces.length < 2) return undefined;
  return html`<form class="row" method="get" action="${path}">
${workspaceChoice(workspaces, workspace, { mayBeAll: false })}
${user}
${Object.entries(keep).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<button class="main">Show</button></form>`;
}

/** Renders the field for a user's external id; undefined if the viewer may not see users of the workspace. */
function userField(
  { viewer, query }: Pick<Visit<PageServices>, 'viewer' | 'query'>,
  { id }: Workspace,
): Part {
  if (!viewer.can('users', id)) return undefined;
  return html`<label class="grow">For a user: external id <input type="search" name="user" value="${query('user')}" maxlength="${MAX_USER}"></label>`;
}

/**
 * Returns the user whose external id is in the query, or undefined if the query has none.
 * @throws {PageError} if the user does not exist or the viewer may not see users
 */
export async function chosenUser(
  { services, viewer, query }: Pick<Visit<PageServices>, 'services' | 'viewer' | 'query'>,
  { id: workspaceId }: Workspace,
): Promise<StoredUser | undefined> {
  const externalId = query('user');
  if (externalId === '') return undefined;
  if (!viewer.can('users', workspaceId)) throw lacking('users');
  const { pool } = services.database;
  // As in the user search: an external id that looks like an address is only confirmed to viewers who may see
  // addresses.
  const isOpen = viewer.can('pii', workspaceId) || !isAddress(externalId);
  const linkUser =
    isOpen && externalId.length <= MAX_USER ? await findLinkUser(pool, workspaceId, externalId) : undefined;
  const [user] = linkUser
    ? await readProfiles(pool, workspaceId, {
        ids: [linkUser.id],
        fields: ['custom_attributes', 'subscription_groups'],
      })
    : [];
  if (!user)
    throw new PageError(
      404,
      'No user of the workspace has this external id. Upper and lower case are different.',
    );
  return user;
}

/** Renders the user's subscription state in a group. */
function stateOf(user: StoredUser, id: string): Part {
  const group = user.subscription_groups?.find((one) => one.id === id);
  if (!group) return html`<span class="faint">no state</span>`;
  const state = group.status.toLowerCase();
  return badge(state, state === 'subscribed' ? 'good' : 'bad');
}

/** Additions to the pages of groups: the subscription states of one user. */
export const groupExtras: Extras<Group> = {
  search: {
    parameters: ['user'],
    fields: (visit, owner) => userField(visit, owner!),
    belowForm: ({ query }) =>
      query('user') !== '' &&
      html`<p class="lead">With the states of ${query('user')}. A group of emails or phone numbers has the state of this user's email or phone.</p>`,
  },
  async columns(visit, owner) {
    const user = await chosenUser(visit, owner!);
    return user ? [{ title: "This user's state", cell: ({ id }) => stateOf(user, id) }] : [];
  },
  below: async ({ viewer }, owner) => centersOf(viewer, owner!),
};

const centersOf = (viewer: Viewer, { id }: Workspace): Part =>
  viewer.can('centers', id) &&
  html`<p class="faint pager">Users choose in <a href="${pathWith('/preference-centers', { workspace: id })}">preference centers</a>.</p>`;
