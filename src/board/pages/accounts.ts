import type { Prisma } from '../../generated/prisma/client.ts';
import { nowDate } from '../../platform/clock.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { findAccountPage } from '../../store/accounts.ts';
import { audited } from '../../store/audit.ts';
import { inviteAccount, revokeInvitation } from '../../store/credentials.ts';
import { endSessions, listSessions } from '../../store/sessions.ts';
import type { Viewer } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, empty, facts, moment, nextPage, pathWith, table, uuid } from '../layout.ts';
import { grantForms, groupTable } from './account-groups.ts';
import { chosenCompany } from './company.ts';
import { sessionTable } from './sign-in.ts';

const PAGE = 50;

/** Maximum number of sessions per account. */
const MAX_SESSIONS = 100;

const MAX_TEXT = 320;

/** Columns for the list. An account's permissions can have a megabyte, so they are not loaded. */
const listed = {
  ...{ id: true, userName: true, givenName: true, familyName: true, department: true, active: true },
  ...{ companyPermissions: true, lastSignInAt: true, invitationExpiresAt: true, passwordHash: true },
} satisfies Prisma.AccountSelect;

type Listed = Prisma.AccountGetPayload<{ select: typeof listed }>;

const list: Page<PageServices> = {
  method: 'get',
  path: '/accounts',
  right: 'company',
  async handle(visit) {
    const { services, query } = visit;
    const text = query('q');
    if (text.length > MAX_TEXT) throw new PageError(400, `'q' must have at most ${MAX_TEXT} characters.`);
    const after = /^\d{1,15}$/.test(query('after')) ? Number(query('after')) : undefined;
    const { company, choice } = await chosenCompany(visit);
    const { pool, prisma } = services.database;
    const { page, isCut } = await findAccountPage(pool, company.id, {
      ...(text !== '' && { condition: { op: 'sw', column: 'userName', value: text } }),
      ...(after !== undefined && { after }),
      limit: PAGE + 1,
    });
    const shown = page.slice(0, PAGE);
    const found = await prisma.account.findMany({
      where: { id: { in: shown.map(({ id }) => id) } },
      orderBy: { position: 'asc' },
      select: listed,
    });
    const next = page.length > PAGE || isCut ? shown.at(-1)!.position : undefined;
    const body = html`<h1>Accounts</h1>
<p class="lead">Who may sign in to the console of ${company.name}. The company's identity provider makes and changes them over SCIM. What is given by workspace is named by <a href="/teams">teams</a> and <a href="${pathWith('/permission-sets', { company: company.id })}">permission sets</a>.</p>
${choice('/accounts')}
<form class="row" method="get" action="/accounts" role="search"><input type="hidden" name="company" value="${company.id}">
<label class="grow">Email address, or what it begins with <input type="search" name="q" value="${text}" maxlength="${MAX_TEXT}"></label><button class="main">Look up</button></form>
${accountTable(found, text)}
${next !== undefined && nextPage('/accounts', { company: company.id, q: text, after: String(next) })}`;
    return { title: 'Accounts', body };
  },
};

function stateOf({ active, passwordHash, invitationExpiresAt, lastSignInAt }: Listed): Html {
  if (!active) return badge('inactive', 'warn');
  if (invitationExpiresAt && invitationExpiresAt > nowDate()) return badge('invited', 'calm');
  // A user who signs in by OpenID Connect needs no password.
  const isOut = passwordHash === null && lastSignInAt === null;
  return isOut ? badge('not invited', 'calm') : badge('active', 'good');
}

function accountTable(accounts: Listed[], text: string): Part {
  if (accounts.length === 0)
    return text === ''
      ? empty(
          'No accounts yet',
          html`An identity provider creates accounts over SCIM with a token from <code>penstock scim-tokens issue</code>.`,
        )
      : empty(
          `No account found for “${text.slice(0, 80)}”`,
          'Enter a shorter part of the address, or choose another company.',
        );
  return table(
    'Accounts',
    ['Account', 'Name', 'Department', 'State', 'Of the company', 'Last sign-in'],
    accounts.map((one) => [
      html`<a href="/accounts/${one.id}">${one.userName}</a>`,
      html`<span class="wrap">${one.givenName} ${one.familyName}</span>`,
      one.department,
      stateOf(one),
      html`<span class="wrap">${one.companyPermissions.join(', ')}</span>`,
      moment(one.lastSignInAt),
    ]),
  );
}

const whole = {
  ...listed,
  companyId: true,
  externalId: true,
  createdAt: true,
  modifiedAt: true,
  appGroups: true,
};

type Whole = Prisma.AccountGetPayload<{ select: typeof whole }>;

/** @throws {PageError} if the account is not in the viewer's company */
async function findOne({ services, viewer, params }: Visit<PageServices>): Promise<Whole> {
  const id = params.id ?? '';
  const where = { id, ...(viewer.accountId !== undefined && { companyId: viewer.companyId ?? '' }) };
  const account = isUuid(id)
    ? await services.database.prisma.account.findFirst({ where, select: whole })
    : null;
  if (account === null) throw new PageError(404, 'Account not found in your company.');
  return account;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/accounts/:id',
  right: 'company',
  async handle(visit) {
    const account = await findOne(visit);
    return { title: account.userName, body: await accountPage(visit, account) };
  },
};

async function accountPage({ services, viewer }: Visit<PageServices>, account: Whole): Promise<Html> {
  const { pool } = services.database;
  const { id, companyId } = account;
  const [groups, forms, sessions] = await Promise.all([
    groupTable(services.database, account),
    grantForms(services.database, account),
    listSessions(pool, { accountId: id, companyId }, { limit: MAX_SESSIONS }),
  ]);
  const isInvited = account.invitationExpiresAt !== null && account.invitationExpiresAt > nowDate();
  const button = (action: string, text: string, style = '') =>
    html`<form method="post" action="/accounts/${id}"><button class="${style}" name="action" value="${action}">${text}</button></form>`;
  return html`<h1>${account.userName}</h1>
<div class="card">${facts([
    ['State', stateOf(account)],
    ['Name', `${account.givenName} ${account.familyName}`],
    ['Department', account.department],
    ['Id', uuid(id)],
    ['External id', account.externalId],
    ['Permissions of the company', account.companyPermissions.join(', ') || 'none'],
    ['Password', account.passwordHash === null ? 'none yet' : 'set'],
    ['Invitation', isInvited ? html`ends ${moment(account.invitationExpiresAt)}` : undefined],
    ['Last sign-in', moment(account.lastSignInAt)],
    ['Made', moment(account.createdAt)],
    ['Changed', moment(account.modifiedAt)],
  ])}</div>
<div class="actions">${account.active && button('invite', account.passwordHash === null ? 'Invite' : 'Invite to set a new password', 'main')}
${isInvited && button('uninvite', 'Revoke invitation', 'danger')}
<a class="button" href="${pathWith('/audit', { subject: id })}">What was done to it</a></div>
<h2>Permissions by workspace</h2>${groups}${forms}
<h2>Sessions</h2>${sessionTable(sessions, { viewer, back: `/accounts/${id}` })}
${sessions.length > 1 && button('sign_out', 'End all sessions', 'danger')}`;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/accounts/:id',
  right: 'company',
  async handle(visit) {
    const { services, actor, field } = visit;
    const account = await findOne(visit);
    const { id, companyId } = account;
    const back = (done: string) => ({ to: pathWith(`/accounts/${id}`, { done }) });
    switch (field('action')) {
      case 'invite': {
        const invited = await inviteAccount(services.database, actor, { id, companyId });
        if (!invited)
          throw new PageError(409, 'The account is not active. Activate it in your identity provider.');
        return { title: 'Invitation', body: invitationPage(visit, account, invited) };
      }
      case 'uninvite': {
        const isGone = await revokeInvitation(services.database, actor, { id, companyId });
        return back(isGone ? 'uninvited' : 'as_before');
      }
      case 'sign_out': {
        const { pool } = services.database;
        const scope = { accountId: id, companyId };
        const sessions = await listSessions(pool, scope, { limit: MAX_SESSIONS });
        const ended = await audited(pool, actor, async (tx) => {
          const entries = await endSessions(
            tx,
            sessions.map((one) => one.id),
            scope,
          );
          return { result: entries.length, entries };
        });
        return back(ended > 0 ? 'ended' : 'nothing_ended');
      }
      default:
        throw new PageError(400, "'action' must be invite, uninvite or sign_out.");
    }
  },
};

function invitationPage(
  { origin }: Pick<Visit<PageServices>, 'origin'> & { viewer: Viewer },
  { id, userName }: Whole,
  { secret, expiresAt }: { secret: string; expiresAt: Date },
): Html {
  return html`<h1>Invitation for ${userName}</h1>
<p class="banner warn" role="status">Do not share the link: with it, anyone can set the password of the account, once, until ${moment(expiresAt)}. The link is not shown again, and replaces earlier links.</p>
<p><code class="secret">${origin}/invitation?token=${secret}</code></p>
<p class="actions"><a class="button" href="/accounts/${id}">To the account</a></p>`;
}

export const accountPages = [list, show, act];
