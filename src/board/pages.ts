/**
 * The dashboard's own pages, before and after the board itself. Nothing in them comes from a request, but the token
 * of an invitation that there is.
 */

/** The form to sign in; `problem` says why the last attempt did not. */
export function signInPage(problem?: string): string {
  return page(
    'Sign in',
    `<form method="post" action="/sign-in">
      ${problem ? `<p role="alert">${problem}</p>` : ''}
      <label>User <input name="user" autocomplete="username" required autofocus></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required></label>
      <button>Sign in</button>
    </form>`,
  );
}

export function signOutPage(): string {
  return page(
    'Sign out',
    `<form method="post" action="/sign-out">
      <p>Sign out of the dashboard?</p>
      <button>Sign out</button>
      <a href="/">Back to the dashboard</a>
    </form>`,
  );
}

/**
 * The form to set a password; `problem` says why the last attempt did not.
 * @param token letters, digits, `_` and `-`
 */
export function invitationPage(token: string, problem?: string): string {
  return page(
    'Set your password',
    `<form method="post" action="/invitation">
      ${problem ? `<p role="alert">${problem}</p>` : ''}
      <input type="hidden" name="token" value="${token}">
      <label>New password <input name="password" type="password" autocomplete="new-password" required autofocus></label>
      <label>Once more <input name="again" type="password" autocomplete="new-password" required></label>
      <button>Set the password</button>
    </form>`,
  );
}

export function invitationEndedPage(): string {
  return page(
    'Invitation',
    `<p role="alert">This invitation was used, replaced, or is too old. Ask for another one.</p>
      <a href="/sign-in">Sign in</a>`,
  );
}

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
      body { display: grid; place-items: center; min-height: 90vh; }
      form { display: grid; gap: 1rem; width: 18rem; }
      label { display: grid; gap: .25rem; }
      input, button { font: inherit; padding: .5rem; }
      [role=alert] { color: light-dark(#a11, #f88); margin: 0; }
    </style>
  </head>
  <body>
    <main>
      <h1>Penstock</h1>
      ${body}
    </main>
  </body>
</html>
`;
}
