import { html, type Part } from '../../platform/html.ts';
import type { Account } from '../../resources/account-permissions.ts';
import { namesOf } from '../../store/accounts.ts';
import type { Database } from '../../store/database.ts';
import type { AppGroup } from '../../store/permission-sets.ts';
import { listSessions } from '../../store/sessions.ts';
import { empty, pathWith, table } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';
import { sessionTable } from './sign-in.ts';

/** Maximum number of sessions per account. */
const MAX_SESSIONS = 100;

/** Maximum number of an account's workspaces, and of teams per workspace, that the page shows. */
const MAX_SHOWN = 100;

/** Additions to the pages of accounts: permissions by workspace, and sessions. */
export const accountExtras: Extras<Account> = {
  async section({ services, viewer }, account) {
    const { id, companyId } = account;
    const [groups, sessions] = await Promise.all([
      groupTable(services.database, account),
      listSessions(services.database.pool, { accountId: id, companyId }, { limit: MAX_SESSIONS }),
    ]);
    return html`<p class="actions"><a class="button" href="${pathWith('/audit', { subject: id })}">Audit entries</a></p>
<h2>Sessions</h2>${sessionTable(sessions, { viewer, back: `/accounts/${id}` })}
<h2>Permissions by workspace</h2>${groups}`;
  },
  below: async (_, company) =>
    html`<p class="faint pager">Give permissions on the page of an account, for example a <a href="${pathWith('/permission-sets', { company: company?.id })}">permission set</a>. An identity provider creates accounts with a <a href="${pathWith('/scim-tokens', { company: company?.id })}">SCIM token</a>.</p>`,
};

/** Renders an account's permissions and teams by workspace, each with a button to remove it. */
async function groupTable({ prisma }: Database, { id, appGroups }: Account): Promise<Part> {
  const all = (appGroups ?? []) as AppGroup[];
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
  const remove = (
    verb: string,
    [field, value]: [field: string, value: string],
    [text, label]: [text: string, label: string],
  ) =>
    html`<form method="post" action="/accounts/${id}"><input type="hidden" name="${field}" value="${value}"><button class="danger" name="action" value="${verb}" aria-label="${label}">${text}</button></form>`;
  return html`${table(
    'Permissions by workspace',
    ['Workspace', 'Permissions', 'Permission set', 'Teams', 'Remove'],
    shown.map(({ workspace, permissions, permissionSet, teams: own, left }) => [
      workspaces.get(workspace) ?? workspace,
      html`<span class="wrap">${permissions.join(', ')}</span>`,
      permissionSet === undefined ? '' : (sets.get(permissionSet) ?? permissionSet),
      html`${own.map(({ team, permissions: given }) => html`<div class="wrap">${teams.get(team) ?? team} (${given.join(', ')}) ${remove('remove-team', ['team', team], ['Remove', `Remove the team ${teams.get(team) ?? team}`])}</div>`)}${left > 0 && `and ${left} more`}`,
      remove(
        'remove-permissions',
        ['workspace', workspace],
        ['Remove all', `Remove all permissions in ${workspaces.get(workspace) ?? workspace}`],
      ),
    ]),
  )}${all.length > MAX_SHOWN && html`<p class="faint pager">The first ${MAX_SHOWN} of ${all.length} are shown.</p>`}`;
}
