import { html, type Part } from '../../platform/html.ts';
import type { Page, PageServices } from '../console.ts';
import { empty, moment, nextPage, pathWith, table } from '../layout.ts';
import { chosenCompany } from './accounts.ts';

/** Of each list. */
const PAGE = 100;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const list: Page<PageServices> = {
  method: 'get',
  path: '/teams',
  right: 'company',
  async handle(visit) {
    const { services, query } = visit;
    const { company, choice } = await chosenCompany(visit);
    const { prisma } = services.database;
    const place = (name: string) => (UUID.test(query(name)) ? { id: { lt: query(name) } } : {});
    const [sets, teams] = await Promise.all([
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
    ]);
    const self = { company: company.id };
    const body = html`<h1>Teams and permission sets</h1>
<p class="lead">What the identity provider of ${company.name} names when it gives permissions to <a href="${pathWith('/accounts', self)}">accounts</a>. A change of a set holds for its accounts at their next request.</p>
${choice('/teams')}
<h2>Permission sets</h2>${setTable(sets.slice(0, PAGE))}
${sets.length > PAGE && nextPage('/teams', { ...self, sets_before: sets[PAGE - 1]!.id })}
<h2>Teams</h2><p class="lead">Permissions of teams open nothing in this console, since no user belongs to a team.</p>
${teamTable(teams.slice(0, PAGE))}
${teams.length > PAGE && nextPage('/teams', { ...self, teams_before: teams[PAGE - 1]!.id })}`;
    return { title: 'Teams and permission sets', body };
  },
};

function setTable(sets: { id: string; name: string; permissions: string[]; createdAt: Date }[]): Part {
  if (sets.length === 0) return empty('None', html`<code>penstock permission-sets create</code> makes one.`);
  return table(
    'Permission sets',
    ['Permission set', 'Permissions', 'Id', 'Made'],
    sets.map(({ id, name, permissions, createdAt }) => [
      name,
      html`<span class="wrap">${permissions.join(', ')}</span>`,
      html`<span class="id">${id}</span>`,
      moment(createdAt),
    ]),
  );
}

function teamTable(
  teams: { id: string; name: string; createdAt: Date; workspace: { name: string } }[],
): Part {
  if (teams.length === 0) return empty('None', html`<code>penstock teams create</code> makes one.`);
  return table(
    'Teams',
    ['Team', 'Workspace', 'Id', 'Made'],
    teams.map(({ id, name, createdAt, workspace }) => [
      name,
      workspace.name,
      html`<span class="id">${id}</span>`,
      moment(createdAt),
    ]),
  );
}

export const teamPages = [list];
