import { createHash, timingSafeEqual } from 'node:crypto';
import express, { type Request, type Response, type Router } from 'express';
import type { Log } from '../log.ts';
import type { Lockout } from './lockout.ts';
import { signInPage, signOutPage } from './pages.ts';
import { clearSessionCookie, readSessionCookie, writeSessionCookie } from './session-cookie.ts';
import type { Sessions } from './sessions.ts';

export interface Account {
  user: string;
  password: string;
}

export interface SignInOptions {
  account: Account;
  sessions: Sessions;
  lockout: Lockout;
  log: Log;
}

/** Signing in and out. Serves /sign-in to everybody; the rest needs the session that /sign-in opens. */
export function createSignIn({ account, sessions, lockout, log }: SignInOptions): Router {
  const router = express.Router();
  // A user name, a password, and nothing that is worth more than this.
  const readForm = express.urlencoded({ extended: false, limit: 4096 });

  router.get('/sign-in', (request, response) => {
    if (sessions.isOpen(readSessionCookie(request))) response.redirect(303, '/');
    else response.send(signInPage());
  });

  router.post('/sign-in', readForm, (request, response) => {
    const seconds = lockout.secondsLeft();
    if (seconds > 0) {
      response.set('Retry-After', String(seconds)).status(429);
      response.send(signInPage(`Too many wrong passwords. Try again in ${seconds} s.`));
    } else if (isAccount(request.body, account)) {
      lockout.succeeded();
      writeSessionCookie(response, sessions.open());
      log.info('signed in to the dashboard');
      response.redirect(303, '/');
    } else {
      lockout.failed();
      log.warn({ address: request.socket.remoteAddress }, 'wrong user or password for the dashboard');
      response.status(401).send(signInPage('Wrong user or password.'));
    }
  });

  router.use((request: Request, response: Response, next) => {
    if (sessions.isOpen(readSessionCookie(request))) return next();
    if (request.method === 'GET' && request.accepts(['json', 'html']) === 'html')
      response.redirect(303, '/sign-in');
    else response.status(401).json({ message: 'Sign in to the dashboard first.' });
  });

  router.get('/sign-out', (_request, response) => {
    response.send(signOutPage());
  });

  router.post('/sign-out', (request, response) => {
    sessions.close(readSessionCookie(request));
    clearSessionCookie(response);
    response.redirect(303, '/sign-in');
  });

  return router;
}

/** Compares both, and takes as long whichever differs, and wherever. */
function isAccount(form: unknown, { user, password }: Account): boolean {
  const given = (form ?? {}) as Record<string, unknown>;
  const rightUser = equal(given.user, user);
  const rightPassword = equal(given.password, password);
  return rightUser && rightPassword;
}

function equal(given: unknown, expected: string): boolean {
  return typeof given === 'string' && timingSafeEqual(digest(given), digest(expected));
}

/** Digests have one length, as the comparison needs. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
