import type { Prisma } from '../../generated/prisma/client.ts';
import { nowDate } from '../../platform/clock.ts';
import { codeOf } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { normalizeStaffEmail } from '../../profile/addresses.ts';
import { isUuid } from '../../profile/values.ts';
import { readName, text } from '../../resources/fields.ts';
import { InvalidValue } from '../../resources/refusal.ts';
import { findAccountPage } from '../../store/accounts.ts';
import { audited } from '../../store/audit.ts';
import { createInvitedAccount, inviteAccount, revokeInvitation } from '../../store/credentials.ts';
import { endSessions, listSessions } from '../../store/sessions.ts';
import type { Viewer } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, empty, facts, moment, nextPage, pathWith, table, uuid } from '../layout.ts';
import { formFields, formProblem, readForm, type Sent } from '../resource-form.ts';
import { changeGroups, grantForms, groupTable, type TriedGrant } from './account-groups.ts';
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
    return { title: 'Accounts', body: await listPage(visit) };
  },
};

async function listPage(visit: Visit<PageServices>, sent?: Sent): Promise<Html> {
  const { services, query } = visit;
  const searched = query('q');
  if (searched.length > MAX_TEXT) throw new PageError(400, `'q' must have at most ${MAX_TEXT} characters.`);
  const after = /^\d{1,15}$/.test(query('after')) ? Number(query('after')) : undefined;
  const { company, choice } = await chosenCompany(visit);
  const { pool, prisma } = services.database;
  const { page, isCut } = await findAccountPage(pool, company.id, {
    ...(searched !== '' && { condition: { op: 'sw', column: 'userName', value: searched } }),
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
  return html`<h1>Accounts</h1>
<p class="lead">Accounts can sign in to the console of ${company.name}. Invite a person by email, or let an identity provider create accounts over SCIM. An account sees what its permissions allow: give them on the page of the account, for example a <a href="${pathWith('/permission-sets', { company: company.id })}">permission set</a>.</p>
${choice('/accounts')}
<form class="row" method="get" action="/accounts" role="search"><input type="hidden" name="company" value="${company.id}">
<label class="grow">Email address, or what it begins with <input type="search" name="q" value="${searched}" maxlength="${MAX_TEXT}"></label><button class="main">Search</button></form>
${accountTable(found, searched)}
${next !== undefined && nextPage('/accounts', { company: company.id, q: searched, after: String(next) })}
<details class="card create" id="invite"${(sent !== undefined || (found.length === 0 && searched === '')) && html` open`}><summary>Invite by email</summary>
<p class="lead">Creates an account without permissions, and a link with which the person sets a password. You send the link yourself.</p>
<form class="stack" method="post" action="/accounts#invite">${formProblem(sent)}<input type="hidden" name="company" value="${company.id}">
${formFields(invitation, { id: 'invite', sent })}
<p class="actions"><button class="main">Invite</button></p></form></details>`;
}

/** Maximum length of an email address in characters. */
const MAX_EMAIL = 254;

function readAddress(text: string): string {
  if (text.length > MAX_EMAIL || normalizeStaffEmail(text) === undefined)
    throw new InvalidValue('Must be an email address, for example ada@example.com.');
  return text;
}

const invitation = {
  email: text({ label: 'Email address', help: 'The person signs in with it' }, readAddress, {
    maxLength: MAX_EMAIL,
  }),
  given_name: text({ label: 'Given name', help: 'For example Ada' }, readName),
  family_name: text({ label: 'Family name', help: 'For example Lovelace' }, readName),
};

const create: Page<PageServices> = {
  method: 'post',
  path: '/accounts',
  right: 'company',
  async handle(visit) {
    const { services, actor, field } = visit;
    const inCompany = { ...visit, query: (name: string) => (name === 'company' ? field('company') : '') };
    const { company } = await chosenCompany(inCompany);
    const { values, ...sent } = readForm(visit, invitation);
    const again = async (problems: Sent['problems'], status: 400 | 409 = 400) => ({
      ...{ title: 'Accounts', status, body: await listPage(inCompany, { ...sent, problems }) },
    });
    if (Object.keys(sent.problems).length > 0) return again(sent.problems);
    const { email, given_name, family_name } = values as Record<keyof typeof invitation, string>;
    const account = {
      ...{ companyId: company.id, userName: email, email: normalizeStaffEmail(email)! },
      ...{ givenName: given_name, familyName: family_name },
    };
    try {
      const invited = await createInvitedAccount(services.database, actor, account);
      const body = invitationPage(visit, { id: invited.id, userName: email }, invited);
      return { title: 'Invitation', body };
    } catch (error) {
      if (codeOf(error) !== 'P2002') throw error;
      return again({ email: 'The company has an account with this address. Search for it above.' }, 409);
    }
  },
};

function stateOf({ active, passwordHash, invitationExpiresAt, lastSignInAt }: Listed): Html {
  if (!active) return badge('inactive', 'warn');
  if (invitationExpiresAt && invitationExpiresAt > nowDate()) return badge('invited', 'calm');
  // A user who signs in by OpenID Connect needs no password.
  const isOut = passwordHash === null && lastSignInAt === null;
  return isOut ? badge('not invited', 'calm') : badge('active', 'good');
}

function accountTable(accounts: Listed[], searched: string): Part {
  if (accounts.length === 0)
    return searched === ''
      ? empty(
          'No accounts yet',
          html`Invite the first person below. An identity provider creates accounts over SCIM with a <a href="/scim-tokens">SCIM token</a>.`,
        )
      : empty(
          `No account found for “${searched.slice(0, 80)}”`,
          'Enter a shorter part of the address, or choose another company.',
        );
  return table(
    'Accounts',
    ['Account', 'Name', 'Department', 'State', 'Company permissions', 'Last sign-in'],
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

/** @param tried the form of permissions that has an error */
async function accountPage(
  { services, viewer }: Visit<PageServices>,
  account: Whole,
  tried?: TriedGrant,
): Promise<Html> {
  const { pool } = services.database;
  const { id, companyId } = account;
  const [groups, forms, sessions] = await Promise.all([
    groupTable(services.database, account),
    grantForms(services.database, account, tried),
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
    ['Company permissions', account.companyPermissions.join(', ') || 'none'],
    ['Password', account.passwordHash === null ? 'none yet' : 'set'],
    ['Invitation', isInvited ? html`ends ${moment(account.invitationExpiresAt)}` : undefined],
    ['Last sign-in', moment(account.lastSignInAt)],
    ['Created', moment(account.createdAt)],
    ['Updated', moment(account.modifiedAt)],
  ])}</div>
<div class="actions">${account.active && button('invite', account.passwordHash === null ? 'Invite' : 'Invite to set a new password', 'main')}
${isInvited && button('uninvite', 'Revoke invitation', 'danger')}
<a class="button" href="${pathWith('/audit', { subject: id })}">Audit entries</a></div>
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
  { id, userName }: Pick<Whole, 'id' | 'userName'>,
  { secret, expiresAt }: { secret: string; expiresAt: Date },
): Html {
  return html`<h1>Invitation for ${userName}</h1>
<p class="banner warn" role="status">Do not share the link: with it, anyone can set the password of the account, once, until ${moment(expiresAt)}. The link is not shown again, and replaces earlier links.</p>
<p><code class="secret">${origin}/invitation?token=${secret}</code></p>
<p class="actions"><a class="button" href="/accounts/${id}">To the account</a></p>`;
}

/** Gives or takes permissions. A form with an error is shown again on the page of the account. */
const changePermissions: Page<PageServices> = {
  method: 'post',
  path: '/accounts/:id/permissions',
  right: 'company',
  async handle(visit) {
    const reply = await changeGroups(visit);
    if ('to' in reply) return reply;
    const account = await findOne(visit);
    return { title: account.userName, status: 400, body: await accountPage(visit, account, reply) };
  },
};

export const accountPages = [list, create, show, act, changePermissions];
