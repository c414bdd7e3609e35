import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { workspacePermissions } from '../../schemas/permissions.ts';
import {
  accountsWith,
  changePermissionSet,
  deletePermissionSet,
  type Ending,
  MOST_HOLDERS,
} from '../../store/permission-sets.ts';
import { type Page, type PageServices, Sorry, type Visit } from '../console.ts';
import { count, empty, facts, moment, pathWith } from '../layout.ts';

/** Characters of a name. */
export const MAX_NAME = 255;

/** Every permission of a workspace, as boxes to tick. */
export function permissionChoice(chosen: readonly string[]): Html {
  return html`<fieldset><legend>Permissions</legend><div class="choices">${workspacePermissions.map((name) => html`<label class="check"><input type="checkbox" name="permission" value="${name}"${chosen.includes(name) && html` checked`}> <code>${name}</code></label>`)}</div></fieldset>`;
}

/** @throws {Sorry} naming the rule */
export function readPermissions({ fields }: Pick<Visit<PageServices>, 'fields'>): string[] {
  const given = fields('permission');
  const wanted = workspacePermissions.filter((one) => given.includes(one));
  if (wanted.length === 0 || given.some((one) => !wanted.includes(one)))
    throw new Sorry(400, "'permission' must be one or more of the listed permissions.");
  return wanted;
}

/** @throws {Sorry} naming the rule */
export function readName({ field }: Pick<Visit<PageServices>, 'field'>): string {
  const name = field('name').trim();
  if (name === '' || name.length > MAX_NAME) throw new Sorry(400, `'name' has 1 to ${MAX_NAME} characters.`);
  return name;
}

/** @param what as the sentence names it. @throws {Sorry} unless it is done */
export function requireDone(ending: Ending, what: string): void {
  if (ending === 'taken') throw new Sorry(409, `Another ${what} already has this name.`);
  if (ending === 'used') throw new Sorry(409, `Accounts still have this ${what}. Remove it from them first.`);
  if (ending === 'gone') throw new Sorry(404, `This ${what} was not found in your company.`);
}

/** The accounts with the set, so that it can be taken from them. */
export function holderList(holders: { id: string; userName: string }[]): Html {
  const shown = holders
    .slice(0, MOST_HOLDERS)
    .sort((one, other) => one.userName.localeCompare(other.userName, 'en'));
  return html`<h2>Accounts with this set</h2>${
    shown.length === 0
      ? empty('Nobody', 'It is given on the page of an account, or by the identity provider.')
      : html`<ul>${shown.map(({ id, userName }) => html`<li><a href="/accounts/${id}">${userName}</a></li>`)}</ul>`
  }${holders.length > MOST_HOLDERS && html`<p class="faint">These are ${count(MOST_HOLDERS, 'account')} of more.</p>`}`;
}

/** A button where nobody has it. */
export function deleteForm(action: string, holders: number): Part {
  return holders === 0
    ? html`<form method="post" action="${action}"><p class="actions"><button class="danger" name="action" value="delete">Delete</button></p></form>`
    : html`<p class="faint">You can delete it when no account has it.</p>`;
}

/** @throws {Sorry} when there is none in the viewer's company */
async function findSet({ services, viewer, params }: Visit<PageServices>) {
  const id = params.id ?? '';
  const where = { id, ...(viewer.accountId !== undefined && { companyId: viewer.companyId ?? '' }) };
  const set = isUuid(id) ? await services.database.prisma.permissionSet.findFirst({ where }) : null;
  if (set === null) throw new Sorry(404, 'Permission set not found in your company.');
  return set;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/permission-sets/:id',
  right: 'company',
  async handle(visit) {
    const { id, companyId, name, permissions, createdAt } = await findSet(visit);
    const holders = await accountsWith(visit.services.database.pool, companyId, { permissionSet: id });
    const body = html`<h1>${name}</h1>
<div class="card">${facts([
      ['Permission set', html`<span class="id">${id}</span>`],
      ['Made', moment(createdAt)],
    ])}</div>
<form class="stack card" method="post" action="/permission-sets/${id}"><label>Name <input name="name" value="${name}" maxlength="${MAX_NAME}" required autocomplete="off"></label>
${permissionChoice(permissions)}
<p class="actions"><button class="main" name="action" value="change">Save permission set</button></p></form>
${holderList(holders)}
${deleteForm(`/permission-sets/${id}`, holders.length)}`;
    return { title: name, body };
  },
};

const act: Page<PageServices> = {
  method: 'post',
  path: '/permission-sets/:id',
  right: 'company',
  async handle(visit) {
    const { services, actor, field } = visit;
    const { id, companyId } = await findSet(visit);
    const { pool } = services.database;
    switch (field('action')) {
      case 'change': {
        const change = { id, companyId, name: readName(visit), permissions: readPermissions(visit) };
        requireDone(await changePermissionSet(pool, actor, change), 'permission set');
        return { to: pathWith(`/permission-sets/${id}`, { done: 'changed' }) };
      }
      case 'delete': {
        requireDone(await deletePermissionSet(pool, actor, { id, companyId }), 'permission set');
        return { to: pathWith('/teams', { company: companyId, done: 'removed' }) };
      }
      default:
        throw new Sorry(400, "'action' must be change or delete.");
    }
  },
};

export const permissionSetPages = [show, act];
