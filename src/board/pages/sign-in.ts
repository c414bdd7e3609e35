import { type Html, html, type Part } from '../../platform/html.ts';
import { shell } from '../layout.ts';

/** The pages before and after the console itself: all that is seen without a session. */

export interface SignInWords {
  /** Why the last attempt did not. */
  problem?: string;
  /** What is good to know before the first. */
  notice?: string;
  /** Whom the last attempt was made as. */
  user?: string;
  /** Where the OpenID provider is asked; absent: there is none. */
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

/** @param who and what this person may do here */
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

export interface Invited {
  /** Letters, digits, `_` and `-`. */
  token: string;
  /** Whose password it is. */
  email: string;
  /** What a password has to be. */
  rule: string;
}

/** The form to set a password; `problem` says why the last attempt did not. */
export function invitationPage({ token, email, rule }: Invited, problem?: string): string {
  return plain(
    'Set your password',
    html`<form class="stack" method="post" action="/invitation">
<p>You are invited to the console. Set the password that you sign in with. ${rule}</p>
${alert(problem)}
<input type="hidden" name="token" value="${token}">
<label>Email address <input autocomplete="username" value="${email}" readonly></label>
<label>New password <input name="password" type="password" autocomplete="new-password" required autofocus></label>
<label>Once more <input name="again" type="password" autocomplete="new-password" required></label>
<button class="main">Set the password</button>
</form>`,
  );
}

export function invitationEndedPage(): string {
  return plain(
    'Invitation',
    html`${alert('This invitation was used, replaced, or is too old. Ask whoever sent it for another one.')}
<p><a href="/sign-in">Sign in</a> if you have set a password already.</p>`,
  );
}

const alert = (problem?: string): Part => problem && html`<p class="banner bad" role="alert">${problem}</p>`;

function plain(title: string, content: Html): string {
  const body = html`<p class="brand">Penstock</p><h1>${title}</h1>${content}`;
  return shell({ title, body, path: '' });
}
