import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { Refusal } from '../../resources/refusal.ts';
import { teamPermissions } from '../../schemas/permissions.ts';
import { namesOf } from '../../store/accounts.ts';
import type { Database } from '../../store/database.ts';
import { type AppGroup, type GroupGrant, grantGroups } from '../../store/permission-sets.ts';
import { PageError, type PageServices, type Visit } from '../console.ts';
import { empty, pathWith, table } from '../layout.ts';

/** Maximum number of an account's workspaces, and of teams per workspace, that the page shows. */
const MAX_SHOWN = 100;

/** Maximum number of workspaces per account and of teams per workspace, as in SCIM. */
const MAX_GROUPS = 500;

/** Maximum number of suggestions for a field. Other names can be typed. */
const MAX_SUGGESTIONS = 200;

interface Holder {
  id: string;
  companyId: string;
  appGroups: unknown;
}

/** Renders an account's permissions and teams by workspace, each with a button to remove it. */
export async function groupTable({ prisma }: Database, { id, appGroups }: Holder): Promise<Part> {
  const all = appGroups as AppGroup[];
  const shown = all.slice(0, MAX_SHOWN).map(({ teams = [], ...group }) => ({
    ...{ ...group, teams: teams.slice(0, MAX_SHOWN), left: teams.length - MAX_SHOWN },
  }));
  if (shown.length === 0)
    return empty(
      'None',
      'The identity provider gives permissions by workspace, as appGroup of its SCIM requests; you give teams and permission sets here.',
    );
  const [workspaces, sets, teams] = await Promise.all([
    namesOf(
      prisma,
      'workspaces',
      shown.map(({ workspace }) => workspace),
    ),
    namesOf(
      prisma,
      'permission_sets',
      shown.flatMap(({ permissionSet }) => permissionSet ?? []),
    ),
    namesOf(
      prisma,
      'teams',
      shown.flatMap((group) => group.teams.map(({ team }) => team)),
    ),
  ]);
  const take = (action: string, value: string, [text, label]: [text: string, label: string]) =>
    html`<form method="post" action="/accounts/${id}/permissions"><input type="hidden" name="of" value="${value}"><button class="danger" name="action" value="${action}" aria-label="${label}">${text}</button></form>`;
  return html`${table(
    'Permissions by workspace',
    ['Workspace', 'Permissions', 'Permission set', 'Teams', 'Remove'],
    shown.map(({ workspace, permissions, permissionSet, teams: own, left }) => [
      workspaces.get(workspace) ?? workspace,
      html`<span class="wrap">${permissions.join(', ')}</span>`,
      permissionSet === undefined ? '' : (sets.get(permissionSet) ?? permissionSet),
      html`${own.map(({ team, permissions: given }) => html`<div class="wrap">${teams.get(team) ?? team} (${given.join(', ')}) ${take('take_team', team, ['Remove', `Remove the team ${teams.get(team) ?? team}`])}</div>`)}${left > 0 && `and ${left} more`}`,
      take('take', workspace, [
        'Remove all',
        `Remove all permissions in ${workspaces.get(workspace) ?? workspace}`,
      ]),
    ]),
  )}${all.length > MAX_SHOWN && html`<p class="faint pager">The first ${MAX_SHOWN} of ${all.length} are shown.</p>`}`;
}

/** Renders the forms that assign a permission set or a team in a workspace of the company. */
export async function grantForms(
  { prisma }: Database,
  { id, companyId }: Holder,
  tried?: TriedGrant,
): Promise<Html> {
  const page = { select: { name: true }, orderBy: { name: 'asc' }, take: MAX_SUGGESTIONS } as const;
  const [workspaces, sets, teams] = await Promise.all([
    prisma.workspace.findMany({ ...page, where: { companyId } }),
    prisma.permissionSet.findMany({ ...page, where: { companyId } }),
    prisma.team.findMany({ ...page, where: { workspace: { companyId } } }),
  ]);
  const offer = (list: string, rows: { name: string }[]) =>
    html`<datalist id="${list}">${[...new Set(rows.map(({ name }) => name))].map((name) => html`<option value="${name}"></option>`)}</datalist>`;
  const problemAt = (verb: string, name: string) =>
    tried?.verb === verb && tried.field === name ? tried.message : undefined;
  const hint = (verb: string, name: string, problem: string | undefined) =>
    problem !== undefined &&
    html`<strong class="hint problem" id="${verb}-${name}" role="alert">${problem}</strong>`;
  const input = (label: string, name: string, verb: string) => {
    const problem = problemAt(verb, name);
    const marks = problem !== undefined && html` aria-invalid="true" aria-describedby="${verb}-${name}"`;
    return html`<label>${label} <input name="${name}" list="${name}s" value="${tried?.verb === verb && tried.given[name]?.[0]}" maxlength="255" required autocomplete="off"${marks}>${hint(verb, name, problem)}</label>`;
  };
  const chosen = tried?.verb === 'give_team' ? (tried.given.permission ?? []) : [];
  return html`${offer('workspaces', workspaces)}${offer('sets', sets)}${offer('teams', teams)}
<h2 id="give">Give permissions</h2><p class="lead">You can give only permissions that you have. If an identity provider sends permissions of this account over SCIM, they replace these.</p>
${tried?.field === '' && html`<p class="banner bad" role="alert">${tried.message}</p>`}
${
  sets.length > 0 &&
  html`<form class="row" method="post" action="/accounts/${id}/permissions#give">${input('In the workspace', 'workspace', 'give_set')}${input('Permission set', 'set', 'give_set')}<button class="main" name="action" value="give_set">Assign permission set</button></form>`
}
${
  teams.length > 0 &&
  html`<form class="stack card" method="post" action="/accounts/${id}/permissions#give">${input('In the workspace', 'workspace', 'give_team')}${input('Team', 'team', 'give_team')}
<fieldset><legend>Permissions in the team</legend>${hint('give_team', 'permission', problemAt('give_team', 'permission'))}<div class="choices">${teamPermissions.map((name) => html`<label class="check"><input type="checkbox" name="permission" value="${name}"${chosen.includes(name) && html` checked`}> <code>${name}</code></label>`)}</div></fieldset>
<p class="actions"><button class="main" name="action" value="give_team">Assign team</button></p></form>`
}
${sets.length === 0 && teams.length === 0 && html`<p class="lead">Create a <a href="/teams">team</a> or a <a href="${pathWith('/permission-sets', { company: companyId })}">permission set</a> first.</p>`}`;
}

/** @throws {PageError} if the account is not in the viewer's company */
async function findHolder({ services, viewer, params }: Visit<PageServices>) {
  const id = params.id ?? '';
  const where = { id, ...(viewer.accountId !== undefined && { companyId: viewer.companyId ?? '' }) };
  const select = { id: true, companyId: true, appGroups: true, version: true };
  const account = isUuid(id) ? await services.database.prisma.account.findFirst({ where, select }) : null;
  if (account === null) throw new PageError(404, 'Account not found in your company.');
  return account;
}

type Changed = Pick<GroupGrant, 'appGroups' | 'gives' | 'workspaceId' | 'detail'>;

/** A form whose values were rejected. */
export interface TriedGrant {
  /** Action of the form. */
  verb: string;
  given: Record<string, string[]>;
  /** Field with the error; empty for an error of the whole form. */
  field: string;
  message: string;
}

/** Changes the permissions of the account. @returns the page to open, or the form with its error */
export async function changeGroups(visit: Visit<PageServices>): Promise<{ to: string } | TriedGrant> {
  try {
    return await applyChange(visit);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const given = Object.fromEntries(
      ['workspace', 'set', 'team', 'permission'].map((name) => [name, visit.fields(name)]),
    );
    return { verb: visit.field('action'), given, field: error.field ?? '', message: error.message };
  }
}

async function applyChange(visit: Visit<PageServices>): Promise<{ to: string }> {
  const { services, actor } = visit;
  const account = await findHolder(visit);
  const changed = await change(visit, account);
  const to = (done: string) => ({ to: pathWith(`/accounts/${account.id}`, { done }) });
  if (changed === undefined) return to('as_before');
  if (changed.appGroups.length > MAX_GROUPS)
    throw new PageError(409, `An account can have at most ${MAX_GROUPS} workspaces.`);
  const ending = await grantGroups(services.database.pool, actor, { account, ...changed });
  if (ending !== 'done')
    throw new PageError(
      409,
      'The account was changed by someone else at the same time. Reload the account and try again.',
    );
  return to(changed.gives ? 'given' : 'taken');
}

/**
 * @returns undefined if nothing would change
 * @throws {PageError} naming the field and its rule
 */
async function change(visit: Visit<PageServices>, account: Holder): Promise<Changed | undefined> {
  const { field } = visit;
  const groups = account.appGroups as AppGroup[];
  const of = field('of');
  switch (field('action')) {
    case 'give_set':
      return giveSet(visit, account);
    case 'give_team':
      return giveTeam(visit, account);
    case 'take': {
      const appGroups = groups.filter(({ workspace }) => workspace !== of);
      const detail = { taken: 'workspace' };
      return appGroups.length === groups.length ? undefined : { appGroups, workspaceId: of, detail };
    }
    case 'take_team': {
      const group = groups.find(({ teams = [] }) => teams.some(({ team }) => team === of));
      if (!group) return undefined;
      const teams = group.teams!.filter(({ team }) => team !== of);
      const appGroups = groups.map((one) => (one === group ? { ...one, teams } : one));
      return { appGroups, workspaceId: group.workspace, detail: { taken: 'team', team: of } };
    }
    default:
      throw new PageError(400, "'action' must be give_set, give_team, take or take_team.");
  }
}

/** Builds a filter for a form field that holds a name or an id. */
function wanted(field: Visit<PageServices>['field'], name: string) {
  const text = field(name).trim();
  return { OR: [{ name: text }, ...(isUuid(text) ? [{ id: text }] : [])] };
}

/** @throws {Refusal} if the company has no such workspace; a workspace of another company gives the same error */
async function workspaceOf({ services, field }: Visit<PageServices>, companyId: string): Promise<string> {
  const where = { companyId, ...wanted(field, 'workspace') };
  const workspace = await services.database.prisma.workspace.findFirst({ where, select: { id: true } });
  if (!workspace) throw new Refusal('Must be the name or id of a workspace of the company.', 'workspace');
  return workspace.id;
}

/** Changes the group of a workspace, and adds the group if it does not exist. */
function withGroup(groups: AppGroup[], workspace: string, change: (group: AppGroup) => AppGroup): AppGroup[] {
  const group = groups.find((one) => one.workspace === workspace);
  if (!group) return [...groups, change({ workspace, permissions: [], teams: [] })];
  return groups.map((one) => (one === group ? change(one) : one));
}

const tooMuch = () => new PageError(403, 'You can only give permissions that you have in this workspace.');

async function giveSet(visit: Visit<PageServices>, { companyId, appGroups }: Holder): Promise<Changed> {
  const { services, viewer, field } = visit;
  const workspaceId = await workspaceOf(visit, companyId);
  const where = { companyId, ...wanted(field, 'set') };
  const set = await services.database.prisma.permissionSet.findFirst({ where });
  if (!set) throw new Refusal('Must be the name or id of a permission set of the company.', 'set');
  if (!viewer.holds(set.permissions, workspaceId)) throw tooMuch();
  return {
    appGroups: withGroup(appGroups as AppGroup[], workspaceId, (group) => ({
      ...{ ...group, permissions: [], permissionSet: set.id },
    })),
    gives: { permissionSet: set.id },
    workspaceId,
    detail: { permission_set: set.id },
  };
}

async function giveTeam(visit: Visit<PageServices>, { companyId, appGroups }: Holder): Promise<Changed> {
  const { services, viewer, field, fields } = visit;
  const workspaceId = await workspaceOf(visit, companyId);
  const where = { workspaceId, ...wanted(field, 'team') };
  const found = await services.database.prisma.team.findFirst({ where, select: { id: true } });
  if (!found) throw new Refusal('Must be the name or id of a team of the workspace.', 'team');
  const given = fields('permission');
  const permissions = teamPermissions.filter((one) => given.includes(one));
  if (permissions.length === 0 || given.some((one) => !permissions.includes(one)))
    throw new Refusal('Choose at least one permission of the list.', 'permission');
  if (!viewer.holds(permissions, workspaceId)) throw tooMuch();
  const team = { team: found.id, permissions };
  return {
    appGroups: withGroup(appGroups as AppGroup[], workspaceId, ({ teams = [], ...group }) => {
      const others = teams.filter((one) => one.team !== team.team);
      if (others.length >= MAX_GROUPS)
        throw new PageError(409, `An account can have at most ${MAX_GROUPS} teams of a workspace.`);
      return { ...group, teams: [...others, team] };
    }),
    gives: { team: team.team },
    workspaceId,
    detail: { team: team.team, permissions },
  };
}
