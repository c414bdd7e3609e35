import { type Html, html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { isUuid } from '../../profile/values.ts';
import { audited } from '../../store/audit.ts';
import { endSessions, type ListedSession, listSessions, type SessionScope } from '../../store/sessions.ts';
import type { Viewer } from '../access.ts';
import { type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { empty, moment, nextPage, pathWith, shell, table } from '../layout.ts';
import type { OperatorSession } from '../sessions.ts';

/** Pages around the console: the sign-in, sign-out and invitation forms, and the list of sessions. */

export interface SignInWords {
  /** Error of the last attempt. */
  problem?: string;
  /** Message above an unused form. */
  notice?: string;
  /** User name of the last attempt. */
  user?: string;
  /** URL that starts an OpenID sign-in; absent if there is no provider. */
  openId?: string | undefined;
}

export function signInPage({ problem, notice, user = '', openId }: SignInWords = {}): string {
  const focus = html` autofocus`;
  return plain(
    'Sign in',
    html`<form class="stack" method="post" action="/sign-in">
${alert(problem)}
${notice && html`<p class="banner good" role="status">${notice}</p>`}
<label>Email address or user <input name="user" autocomplete="username" value="${user}" required${!user && focus}></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required${user && focus}></label>
<button class="main">Sign in</button>
${openId && html`<a class="button" href="${openId}">Sign in with single sign-on</a>`}
</form>`,
  );
}

/** Renders the form to sign out, with the user and the user's access. */
export function signOutPage({ user, readOnly }: { user: string; readOnly: boolean }): string {
  return plain(
    'Sign out',
    html`<form class="stack" method="post" action="/sign-out">
<p>You are signed in as <strong>${user}</strong>${readOnly && ', with the permissions that you have in workspaces'}.</p>
<button class="main">Sign out</button>
<a href="/">Back to the console</a>
</form>`,
  );
}

interface Invited {
  /** Token of the invitation: letters, digits, `_` and `-`. */
  token: string;
  /** Email address of the invited user. */
  email: string;
  /** Rule for a new password. */
  rule: string;
}

/** Renders the form to set a password; `problem` is the error of the last attempt. */
export function invitationPage({ token, email, rule }: Invited, problem?: string): string {
  return plain(
    'Set your password',
    html`<form class="stack" method="post" action="/invitation">
<p>You are invited to the console. Set the password that you sign in with. ${rule}</p>
${alert(problem)}
<input type="hidden" name="token" value="${token}">
<label>Email address <input autocomplete="username" value="${email}" readonly></label>
<label>New password <input name="password" type="password" autocomplete="new-password" required autofocus></label>
<label>Repeat password <input name="again" type="password" autocomplete="new-password" required></label>
<button class="main">Set password</button>
</form>`,
  );
}

export function invitationEndedPage(): string {
  return plain(
    'Invitation',
    html`${alert('This invitation was used or replaced, or has expired. Ask your administrator for a new one.')}
<p><a href="/sign-in">Sign in</a> if you have set a password already.</p>`,
  );
}

const alert = (problem?: string): Part => problem && html`<p class="banner bad" role="alert">${problem}</p>`;

function plain(title: string, content: Html): string {
  const body = html`<p class="brand">Penstock</p><h1>${title}</h1>${content}`;
  return shell({ title, body, path: '' });
}

const PAGE = 50;

/** Maximum number of sessions that one action ends. */
const MAX_ENDED_SESSIONS = 200;

/**
 * Returns the sessions that the viewer may see and end: own sessions, or for administrators the sessions of the company
 * (BOARD_USER: all).
 */
function sessionScope({ full, accountId, companyId }: Viewer, isOwn: boolean): SessionScope {
  if (isOwn || !full) return { accountId };
  return { companyId };
}

const list: Page<PageServices> = {
  method: 'get',
  path: '/sessions',
  right: 'anyone',
  async handle({ services, viewer, query }) {
    const isOperator = viewer.accountId === undefined;
    const isOwn = query('of') !== 'all' || !viewer.full;
    const before = isUuid(query('before')) ? query('before') : undefined;
    const sessions =
      isOwn && isOperator
        ? []
        : await listSessions(services.database.pool, sessionScope(viewer, isOwn), {
            before,
            limit: PAGE + 1,
          });
    const operators = isOperator && before === undefined ? services.operators.list() : [];
    const { rows, next } = takePage(sessions, PAGE, ({ id }) => id);
    const shown = [...operators.map(toListed(viewer)), ...rows];
    const tab = (of: string, text: string) =>
      html`<a class="tab" href="${pathWith('/sessions', { of })}"${(of === 'all') !== isOwn && html` aria-current="page"`}>${text}</a>`;
    const body = html`<h1>Sessions</h1>
<p class="lead">Sessions of the console. A session lasts for twelve hours. An ended session stops at its next request.</p>
${viewer.full && html`<nav class="tabs" aria-label="Whose">${tab('', 'Your own')}${tab('all', isOperator ? 'Of all accounts' : 'Of the company')}</nav>`}
${sessionTable(shown, { viewer, back: pathWith('/sessions', { of: isOwn ? '' : 'all' }) })}
${next !== null && nextPage('/sessions', { of: 'all', before: next })}
${isOwn && shown.length > 1 && html`<form method="post" action="/sessions"><p class="actions"><button class="danger" name="action" value="end_others">End all other sessions</button></p></form>`}`;
    return { title: 'Sessions', body };
  },
};

function toListed({ user }: Viewer): (session: OperatorSession) => ListedSession {
  return ({ id, beganAt, endsAt, seenAt, address, agent }) => ({
    ...{ id, accountId: '', companyId: '', userName: user, address: address ?? null, agent },
    ...{ beganAt: new Date(beganAt), endsAt: new Date(endsAt), seenAt: new Date(seenAt) },
  });
}

/** @param back page to which ending a session returns */
export function sessionTable(
  sessions: ListedSession[],
  { viewer, back }: { viewer: Viewer; back: string },
): Part {
  if (sessions.length === 0) return empty('Nobody is signed in', 'A session begins when somebody signs in.');
  return table(
    'Sessions',
    ['Account', 'Browser', 'Address', 'Began', 'Last seen', 'End'],
    sessions.map((session) => [
      session.accountId !== '' && viewer.full
        ? html`<a href="/accounts/${session.accountId}">${session.userName}</a>`
        : session.userName,
      session.agent,
      session.address ?? '',
      moment(session.beganAt),
      moment(session.seenAt),
      session.id === viewer.sessionId ? html`<span class="faint">this one</span>` : endForm(session.id, back),
    ]),
  );
}

function endForm(id: string, back: string): Html {
  return html`<form method="post" action="/sessions"><input type="hidden" name="id" value="${id}"><input type="hidden" name="back" value="${back}"><button class="danger" name="action" value="end" aria-label="End the session ${id}">End</button></form>`;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/sessions',
  right: 'anyone',
  async handle(visit) {
    const { viewer, field } = visit;
    switch (field('action')) {
      case 'end': {
        const id = field('id').toLowerCase();
        if (!isUuid(id)) throw new PageError(400, "'id' must be the id of a session.");
        const ended = await end(visit, [id], false);
        // Only paths of pages with sessions are allowed as a redirect target.
        const back = /^\/(?:sessions\?of=all|accounts\/[0-9a-f-]{36})$/.test(field('back'))
          ? field('back')
          : '/sessions';
        const done = ended > 0 ? 'ended' : 'nothing_ended';
        return { to: `${back}${back.includes('?') ? '&' : '?'}done=${done}` };
      }
      case 'end_others': {
        const ids = (await ownSessions(visit)).filter((id) => id !== viewer.sessionId);
        const ended = await end(visit, ids, true);
        return { to: pathWith('/sessions', { done: ended > 0 ? 'ended' : 'nothing_ended' }) };
      }
      default:
        throw new PageError(400, "'action' must be end or end_others.");
    }
  },
};

async function ownSessions({ services, viewer }: Visit<PageServices>): Promise<string[]> {
  if (viewer.accountId === undefined) return services.operators.list().map(({ id }) => id);
  const scope = { accountId: viewer.accountId };
  const sessions = await listSessions(services.database.pool, scope, { limit: MAX_ENDED_SESSIONS });
  return sessions.map(({ id }) => id);
}

/**
 * Ends the sessions that the viewer may end.
 * @returns the number of sessions ended
 */
async function end(
  { services, viewer, actor }: Visit<PageServices>,
  ids: string[],
  isOwn: boolean,
): Promise<number> {
  const { operators, database } = services;
  const isOperator = viewer.accountId === undefined;
  // Only BOARD_USER can end sessions of BOARD_USER.
  const closed = isOperator ? ids.filter((id) => operators.close(id)) : [];
  const subject = { kind: 'operator', id: 'BOARD_USER' };
  return audited(database.pool, actor, async (tx) => {
    const entries = isOwn && isOperator ? [] : await endSessions(tx, ids, sessionScope(viewer, isOwn));
    const entriesOfEnded = closed.map((session) => ({
      ...{ action: 'sessions.end' as const, subject, detail: { session } },
    }));
    return { result: entries.length + closed.length, entries: [...entries, ...entriesOfEnded] };
  });
}

export const sessionPages = [list, act];
