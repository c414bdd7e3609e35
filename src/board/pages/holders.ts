import { type Html, html } from '../../platform/html.ts';
import { accountsWith, MAX_HOLDERS } from '../../store/permission-sets.ts';
import { count, empty } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';

/** Renders the accounts that have the permission set or team. It can only be deleted if there are none. */
function holderList(holders: { id: string; userName: string }[]): Html {
  const shown = holders
    .slice(0, MAX_HOLDERS)
    .sort((one, other) => one.userName.localeCompare(other.userName, 'en'));
  return html`<h2>Accounts</h2>${
    shown.length === 0
      ? empty('No account has it', 'Assign it on the page of an account, or through the identity provider.')
      : html`<ul>${shown.map(({ id, userName }) => html`<li><a href="/accounts/${id}">${userName}</a></li>`)}</ul>`
  }${holders.length > MAX_HOLDERS && html`<p class="faint">These are ${count(MAX_HOLDERS, 'account')} of more.</p>`}`;
}

export const teamExtras: Extras<{ id: string; workspace: { companyId: string } }> = {
  section: async ({ services }, { id, workspace }) =>
    holderList(await accountsWith(services.database.pool, workspace.companyId, { team: id })),
};

export const permissionSetExtras: Extras<{ id: string; companyId: string }> = {
  section: async ({ services }, { id, companyId }) =>
    holderList(await accountsWith(services.database.pool, companyId, { permissionSet: id })),
};
