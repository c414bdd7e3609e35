import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Group } from '../../resources/groups.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import { parseUserSearch, searchUsers } from '../../store/profile-search.ts';
import { countStates, MAX_COUNTED } from '../../store/subscription-states.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, lacking, type PageServices, type Visit } from '../console.ts';
import { badge, pathWith } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';
import { maskedSearch } from './users.ts';

/** Maximum length of the search text in characters. External ids are shorter. */
const MAX_USER = 1000;

/** Returns the workspace of the page: the selected one, or the first. */
export async function presentWorkspace(
  visit: Pick<Visit<PageServices>, 'workspaces' | 'query' | 'findWorkspace'>,
): Promise<Workspace> {
  return (await chosenWorkspace(visit)) ?? visit.workspaces[0]!;
}

/** Renders a form to select a user. Other query parameters in `keep` are preserved. */
export function chooseUser(
  { viewer, query }: Pick<Visit<PageServices>, 'viewer' | 'query'>,
  {
    path,
    workspace,
    problem,
    keep,
  }: { path: string; workspace: Workspace; problem: string | undefined; keep: Record<string, string> },
): Part {
  const user = userField({ viewer, query }, workspace, problem);
  if (!user) return undefined;
  return html`<form class="row" method="get" action="${path}">
${user}
${Object.entries(keep).map(([name, value]) => value !== '' && html`<input type="hidden" name="${name}" value="${value}">`)}
<button class="main">Show</button></form>`;
}

/** Renders the field for an identifier of a user; undefined if the viewer may not see users of the workspace. */
function userField(
  { viewer, query }: Pick<Visit<PageServices>, 'viewer' | 'query'>,
  { id }: Workspace,
  problem: string | undefined,
): Part {
  if (!viewer.can('users', id)) return undefined;
  const pii = viewer.can('pii', id);
  return html`<label class="grow">For a user: ${pii ? 'external id, email, phone, alias' : 'external id'} or service id <input type="search" name="user" value="${query('user')}" maxlength="${MAX_USER}" autocomplete="off"${problem !== undefined && html` aria-invalid="true" aria-describedby="user-hint"`}>${problem !== undefined && html`<span class="hint" id="user-hint"><strong class="problem" role="alert">${problem}</strong></span>`}</label>`;
}

/** The user that the query names, or a message for the field. Both are absent if the query is empty. */
interface Chosen {
  user?: StoredUser;
  problem?: string;
}

type UserVisit = Pick<Visit<PageServices>, 'services' | 'viewer' | 'query'>;

/** Users of the requests in progress, because several parts of a page need the user. */
const chosenUsers = new WeakMap<UserVisit, Promise<Chosen>>();

/**
 * Finds the user whose identifier is in the query: any that the search of users takes in full. Reads the user once for each
 * request, in the workspace of the first call.
 * @throws {PageError} if the viewer may not see users
 */
export function chosenUser(visit: UserVisit, workspace: Workspace): Promise<Chosen> {
  const chosen = chosenUsers.get(visit) ?? findUser(visit, workspace);
  chosenUsers.set(visit, chosen);
  return chosen;
}

async function findUser(
  { services, viewer, query }: UserVisit,
  { id: workspaceId }: Workspace,
): Promise<Chosen> {
  const text = query('user');
  if (text === '') return {};
  if (!viewer.can('users', workspaceId)) throw lacking('users');
  const pii = viewer.can('pii', workspaceId);
  const unknown = pii
    ? 'No user of the workspace has this identifier. Upper and lower case are different in external ids.'
    : 'No user of the workspace has this external id or service id. Without the permission “view_pii” other identifiers are not searched.';
  if (text.length > MAX_USER) return { problem: unknown };
  const { pool } = services.database;
  const { prefix: _, ...identifiers } = parseUserSearch(text);
  const search = pii ? identifiers : maskedSearch(text);
  const matches = search ? await searchUsers(pool, [workspaceId], { search, limit: 2 }) : [];
  const [first, second] = matches;
  // The first match has the best rank: an id before an alias, and an alias before an address.
  const isOne = second === undefined || [first?.externalId, toServiceId(first!.id)].includes(text);
  if (first && !isOne)
    return { problem: 'Several users have this identifier. Enter the external id or the service id of one.' };
  const [user] = first
    ? await readProfiles(pool, workspaceId, {
        ids: [first.id],
        fields: ['custom_attributes', 'subscription_groups'],
      })
    : [];
  return user ? { user } : { problem: unknown };
}

/** Renders the user's subscription state in a group. */
function stateOf(user: StoredUser, id: string): Part {
  const group = user.subscription_groups?.find((one) => one.id === id);
  if (!group) return html`<span class="faint">no state</span>`;
  const state = group.status.toLowerCase();
  return badge(state, state === 'subscribed' ? 'good' : 'bad');
}

/** Number of states of a group, which may be more than MAX_COUNTED. */
const counted = (states: number): string =>
  states > MAX_COUNTED ? `${grouped(MAX_COUNTED)}+` : grouped(states);

/** Additions to the pages of groups: the number of states, and the subscription states of one user. */
export const groupExtras: Extras<Group> = {
  search: {
    parameters: ['user'],
    fields: async (visit, owner) => userField(visit, owner!, (await chosenUser(visit, owner!)).problem),
    belowForm: ({ query }) =>
      query('user') !== '' &&
      html`<p class="lead">With the states of ${query('user')}. A group of emails or phone numbers has the state of this user's email or phone.</p>`,
    isInvalid: async (visit) =>
      (await chosenUser(visit, await presentWorkspace(visit))).problem !== undefined,
  },
  async columns(visit, owner, groups) {
    const { pool } = visit.services.database;
    const [{ user }, counts] = await Promise.all([
      chosenUser(visit, owner!),
      countStates(
        pool,
        owner!.id,
        groups.map(({ id }) => id),
      ),
    ]);
    return [
      ...(user ? [{ title: "This user's state", cell: ({ id }: Group) => stateOf(user, id) }] : []),
      { title: 'Subscribed', isNumber: true, cell: ({ id }) => counted(counts.get(id)?.subscribed ?? 0) },
      { title: 'Unsubscribed', isNumber: true, cell: ({ id }) => counted(counts.get(id)?.unsubscribed ?? 0) },
    ];
  },
  below: async ({ viewer }, owner) =>
    html`<p class="faint pager">A number counts the email addresses, phone numbers, and users without one, that have the state.</p>${centersOf(viewer, owner!)}`,
};

const centersOf = (viewer: Viewer, { id }: Workspace): Part =>
  viewer.can('centers', id) &&
  html`<p class="faint pager">Users choose in <a href="${pathWith('/preference-centers', { workspace: id })}">preference centers</a>.</p>`;
