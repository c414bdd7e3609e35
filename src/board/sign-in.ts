import { createHash, timingSafeEqual } from 'node:crypto';
import express, { type Request, type Response, type Router } from 'express';
import type { Log } from '../log.ts';
import type { Accounts } from './accounts.ts';
import { readNamed } from './form.ts';
import { createInvitation } from './invitation.ts';
import type { Lockouts } from './lockouts.ts';
import { signInPage, signOutPage } from './pages.ts';
import { clearSessionCookie, readSessionCookie, writeSessionCookie } from './session-cookie.ts';
import { OPERATOR, type Sessions } from './sessions.ts';

export interface Account {
  user: string;
  password: string;
}

export interface SignInOptions {
  account: Account;
  accounts: Accounts;
  sessions: Sessions;
  lockouts: Lockouts;
  log: Log;
}

/**
 * Signing in and out. Serves /sign-in and /invitation to everybody; the rest needs the session that /sign-in
 * opens. Behind it `response.locals.user` says who it is, and `response.locals.readOnly` whether the person may only look.
 */
export function createSignIn({ account, accounts, sessions, lockouts, log }: SignInOptions): Router {
  const router = express.Router();
  // A user name, a password, and nothing that is worth more than this.
  const readForm = express.urlencoded({ extended: false, limit: 4096 });

  router.get('/sign-in', (request, response) => {
    if (sessions.isOpen(readSessionCookie(request))) response.redirect(303, '/');
    else if (readNamed(request.query, 'password').password === 'set')
      response.send(signInPage({ notice: 'Your password is set. Sign in with it.' }));
    else response.send(signInPage());
  });

  router.post('/sign-in', readForm, async (request, response) => {
    const { user, password } = readNamed(request.body, 'user', 'password');
    // Every name without an @ can only mean the operator, who is one: so there is one count.
    const isOperator = user === account.user || !user.includes('@');
    const lockout = lockouts.of(isOperator ? '' : user.toLowerCase());
    const seconds = lockout.secondsLeft();
    if (seconds > 0) {
      response.set('Retry-After', String(seconds)).status(429);
      response.send(signInPage({ problem: `Too many wrong passwords. Try again in ${seconds} s.`, user }));
      return;
    }
    if (!isOperator && accounts.isBusy()) {
      response.set('Retry-After', '1').status(429);
      response.send(signInPage({ problem: 'Too many people are signing in. Try again.', user }));
      return;
    }
    lockout.failed();
    const whose = isOperator
      ? isAccount({ user, password }, account) && OPERATOR
      : await accounts.signIn(user.toLowerCase(), password);
    if (whose) {
      lockout.succeeded();
      writeSessionCookie(request, response, sessions.open(whose));
      log.info(whose === OPERATOR ? {} : { account_id: whose.accountId }, 'signed in to the dashboard');
      response.redirect(303, '/');
    } else {
      lockout.answered();
      log.warn({ address: request.socket.remoteAddress }, 'wrong user or password for the dashboard');
      response.status(401).send(signInPage({ problem: 'Wrong user or password.', user }));
    }
  });

  router.use(createInvitation(accounts, log));

  router.use(async (request: Request, response: Response, next) => {
    const id = readSessionCookie(request);
    const whose = sessions.whoseIs(id);
    // Looked up each time, so that whoever is deactivated or deleted is out at once.
    const rights =
      whose === OPERATOR
        ? { user: account.user, readOnly: false }
        : whose && (await accounts.rightsOf(whose));
    if (rights) {
      Object.assign(response.locals, rights);
      return next();
    }
    sessions.close(id);
    if (request.method === 'GET' && request.accepts(['json', 'html']) === 'html')
      response.redirect(303, '/sign-in');
    else response.status(401).json({ message: 'Sign in to the dashboard first.' });
  });

  router.get('/sign-out', (_request, response) => {
    const { user, readOnly } = response.locals as { user: string; readOnly: boolean };
    response.send(signOutPage({ user, readOnly }));
  });

  router.post('/sign-out', (request, response) => {
    sessions.close(readSessionCookie(request));
    clearSessionCookie(response);
    response.redirect(303, '/sign-in');
  });

  return router;
}

/** Compares both, and takes as long whichever differs, and wherever. */
function isAccount(given: Account, { user, password }: Account): boolean {
  const rightUser = equal(given.user, user);
  const rightPassword = equal(given.password, password);
  return rightUser && rightPassword;
}

function equal(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

/** Digests have one length, as the comparison needs. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
