import { html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import {
  accountsWith,
  deleteTeam,
  makePermissionSet,
  makeTeam,
  renameTeam,
} from '../../store/permission-sets.ts';
import { type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { empty, facts, moment, nextPage, pathWith, table } from '../layout.ts';
import { chosenCompany } from './accounts.ts';
import {
  deleteForm,
  holderList,
  MAX_NAME,
  permissionChoice,
  readName,
  readPermissions,
  requireDone,
} from './permission-sets.ts';

/** Of each list. */
const PAGE = 100;

/** Names that a field offers; any other one can be typed. */
const MOST_OFFERED = 200;

const list: Page<PageServices> = {
  method: 'get',
  path: '/teams',
  right: 'company',
  async handle(visit) {
    const { services, query } = visit;
    const { company, choice } = await chosenCompany(visit);
    const { prisma } = services.database;
    const place = (name: string) => (isUuid(query(name)) ? { id: { lt: query(name) } } : {});
    const [sets, teams, workspaces] = await Promise.all([
      prisma.permissionSet.findMany({
        where: { companyId: company.id, ...place('sets_before') },
        orderBy: { id: 'desc' },
        take: PAGE + 1,
      }),
      prisma.team.findMany({
        where: { workspace: { companyId: company.id }, ...place('teams_before') },
        include: { workspace: { select: { name: true } } },
        orderBy: { id: 'desc' },
        take: PAGE + 1,
      }),
      prisma.workspace.findMany({
        ...{ where: { companyId: company.id }, select: { name: true } },
        ...{ orderBy: { name: 'asc' }, take: MOST_OFFERED },
      }),
    ]);
    const self = { company: company.id };
    const body = html`<h1>Teams and permission sets</h1>
<p class="lead">What <a href="${pathWith('/accounts', self)}">accounts</a> of ${company.name} are given, by the identity provider or on their page. A change of a set holds for its accounts at their next request.</p>
${choice('/teams')}
<h2>Permission sets</h2>${setTable(sets.slice(0, PAGE))}
${sets.length > PAGE && nextPage('/teams', { ...self, sets_before: sets[PAGE - 1]!.id })}
<details class="card"><summary>Create a permission set</summary><form class="stack" method="post" action="/teams"><input type="hidden" name="company" value="${company.id}">
<label>Name <input name="name" maxlength="${MAX_NAME}" required autocomplete="off"></label>${permissionChoice([])}
<p class="actions"><button class="main" name="action" value="make_set">Create permission set</button></p></form></details>
<h2>Teams</h2><p class="lead">Permissions of teams open nothing in this console, since no user belongs to a team.</p>
${teamTable(teams.slice(0, PAGE))}
${teams.length > PAGE && nextPage('/teams', { ...self, teams_before: teams[PAGE - 1]!.id })}
<datalist id="workspaces">${workspaces.map(({ name }) => html`<option value="${name}"></option>`)}</datalist>
<form class="row" method="post" action="/teams"><input type="hidden" name="company" value="${company.id}">
<label>Workspace <input name="workspace" list="workspaces" maxlength="${MAX_NAME}" required autocomplete="off"></label>
<label>Name <input name="name" maxlength="${MAX_NAME}" required autocomplete="off"></label>
<button class="main" name="action" value="make_team">Create team</button></form>`;
    return { title: 'Teams and permission sets', body };
  },
};

function setTable(sets: { id: string; name: string; permissions: string[]; createdAt: Date }[]): Part {
  if (sets.length === 0) return empty('None', 'Make one below, of the permissions that go together.');
  return table(
    'Permission sets',
    ['Permission set', 'Permissions', 'Id', 'Made'],
    sets.map(({ id, name, permissions, createdAt }) => [
      html`<a href="/permission-sets/${id}">${name}</a>`,
      html`<span class="wrap">${permissions.join(', ')}</span>`,
      html`<span class="id">${id}</span>`,
      moment(createdAt),
    ]),
  );
}

function teamTable(
  teams: { id: string; name: string; createdAt: Date; workspace: { name: string } }[],
): Part {
  if (teams.length === 0) return empty('None', 'Make one below, in a workspace.');
  return table(
    'Teams',
    ['Team', 'Workspace', 'Id', 'Made'],
    teams.map(({ id, name, createdAt, workspace }) => [
      html`<a href="/teams/${id}">${name}</a>`,
      workspace.name,
      html`<span class="id">${id}</span>`,
      moment(createdAt),
    ]),
  );
}

const make: Page<PageServices> = {
  method: 'post',
  path: '/teams',
  right: 'company',
  async handle(visit) {
    const { services, actor, field } = visit;
    const { pool, prisma } = services.database;
    // The form names it where an address does.
    const { company } = await chosenCompany({ ...visit, query: field });
    const companyId = company.id;
    switch (field('action')) {
      case 'make_set': {
        const set = { companyId, name: readName(visit), permissions: readPermissions(visit) };
        requireDone(await makePermissionSet(pool, actor, set), 'permission set');
        break;
      }
      case 'make_team': {
        const name = readName(visit);
        const text = field('workspace').trim();
        const OR = [{ name: text }, ...(isUuid(text) ? [{ id: text }] : [])];
        const workspace = await prisma.workspace.findFirst({ where: { companyId, OR } });
        if (!workspace)
          throw new Sorry(400, "'workspace' must be the name or id of a workspace of the company.");
        requireDone(await makeTeam(pool, actor, { workspaceId: workspace.id, companyId, name }), 'team');
        break;
      }
      default:
        throw new Sorry(400, "'action' must be make_set or make_team.");
    }
    return { to: pathWith('/teams', { company: companyId, done: 'made' }) };
  },
};

/** @throws {Sorry} when there is none in the viewer's company */
async function findTeam({ services, viewer, params }: Visit<PageServices>) {
  const id = params.id ?? '';
  const of = viewer.accountId === undefined ? {} : { workspace: { companyId: viewer.companyId ?? '' } };
  const team = isUuid(id)
    ? await services.database.prisma.team.findFirst({
        where: { id, ...of },
        include: { workspace: { select: { name: true, companyId: true } } },
      })
    : null;
  if (team === null) throw new Sorry(404, 'Team not found in your company.');
  return team;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/teams/:id',
  right: 'company',
  async handle(visit) {
    const { id, name, workspace, createdAt } = await findTeam(visit);
    const holders = await accountsWith(visit.services.database.pool, workspace.companyId, { team: id });
    const body = html`<h1>${name}</h1>
<div class="card">${facts([
      ['Team of', workspace.name],
      ['Id', html`<span class="id">${id}</span>`],
      ['Made', moment(createdAt)],
    ])}</div>
<form class="row" method="post" action="/teams/${id}"><label>Name <input name="name" value="${name}" maxlength="${MAX_NAME}" required autocomplete="off"></label>
<button class="main" name="action" value="rename">Rename</button></form>
${holderList(holders)}
${deleteForm(`/teams/${id}`, holders.length)}`;
    return { title: name, body };
  },
};

const act: Page<PageServices> = {
  method: 'post',
  path: '/teams/:id',
  right: 'company',
  async handle(visit) {
    const { services, actor, field } = visit;
    const { id, workspace } = await findTeam(visit);
    const { pool } = services.database;
    const { companyId } = workspace;
    switch (field('action')) {
      case 'rename': {
        requireDone(await renameTeam(pool, actor, { id, companyId, name: readName(visit) }), 'team');
        return { to: pathWith(`/teams/${id}`, { done: 'changed' }) };
      }
      case 'delete': {
        requireDone(await deleteTeam(pool, actor, { id, companyId }), 'team');
        return { to: pathWith('/teams', { company: companyId, done: 'removed' }) };
      }
      default:
        throw new Sorry(400, "'action' must be rename or delete.");
    }
  },
};

export const teamPages = [list, make, show, act];
