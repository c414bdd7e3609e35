import escapeHtml from 'escape-html';

/** The dashboard's own pages, before and after the board itself. */

export interface SignInWords {
  /** Why the last attempt did not. */
  problem?: string;
  /** What is good to know before the first. */
  notice?: string;
  /** Whom the last attempt was made as. */
  user?: string;
}

export function signInPage({ problem, notice, user = '' }: SignInWords = {}): string {
  const [toUser, toPassword] = user ? ['', ' autofocus'] : [' autofocus', ''];
  return page(
    'Sign in',
    `<form method="post" action="/sign-in">
      ${alert(problem)}
      ${notice ? `<p role="status">${escapeHtml(notice)}</p>` : ''}
      <label>Email address or user <input name="user" autocomplete="username" value="${escapeHtml(user)}" required${toUser}></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required${toPassword}></label>
      <button>Sign in</button>
    </form>`,
  );
}

/** @param who and what this person may do here */
export function signOutPage({ user, readOnly }: { user: string; readOnly: boolean }): string {
  return page(
    'Sign out',
    `<form method="post" action="/sign-out">
      <p>You are signed in as <strong>${escapeHtml(user)}</strong>${readOnly ? ', and may look but change nothing' : ''}.</p>
      <button>Sign out</button>
      <a href="/">Back to the dashboard</a>
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
  return page(
    'Set your password',
    `<form method="post" action="/invitation">
      <p>You are invited to the dashboard. Set the password that you sign in with. ${escapeHtml(rule)}</p>
      ${alert(problem)}
      <input type="hidden" name="token" value="${escapeHtml(token)}">
      <label>Email address <input autocomplete="username" value="${escapeHtml(email)}" readonly></label>
      <label>New password <input name="password" type="password" autocomplete="new-password" required autofocus></label>
      <label>Once more <input name="again" type="password" autocomplete="new-password" required></label>
      <button>Set the password</button>
    </form>`,
  );
}

export function invitationEndedPage(): string {
  return page(
    'Invitation',
    `${alert('This invitation was used, replaced, or is too old. Ask whoever sent it for another one.')}
      <p><a href="/sign-in">Sign in</a> if you have set a password already.</p>`,
  );
}

const alert = (problem?: string) => (problem ? `<p role="alert">${escapeHtml(problem)}</p>` : '');

function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="robots" content="noindex">
    <title>Penstock – ${title}</title>
    <style>
      :root { color-scheme: light dark; font-family: system-ui, sans-serif; }
      body { display: grid; place-items: center; min-height: 90vh; line-height: 1.4; }
      main { width: min(20rem, 90vw); }
      h1 small { display: block; font-size: 1rem; font-weight: normal; }
      form { display: grid; gap: 1rem; }
      p { margin: 0; overflow-wrap: anywhere; }
      label { display: grid; gap: .25rem; }
      input, button { font: inherit; padding: .5rem; }
      input[readonly] { border-style: dashed; }
      [role=alert] { color: light-dark(#a11, #f88); }
      [role=status] { color: light-dark(#161, #8d8); }
    </style>
  </head>
  <body>
    <main>
      <h1>Penstock <small>${title}</small></h1>
      ${body}
    </main>
  </body>
</html>
`;
}
