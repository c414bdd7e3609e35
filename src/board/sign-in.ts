import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request, Response, Router } from 'express';
import express from 'express';
import { unlessUnavailable } from '../platform/lifecycle.ts';
import type { Log, StrangersLog } from '../platform/log.ts';
import { storable } from '../store/database.ts';
import { namelessOperator, type Viewer } from './access.ts';
import { type Accounts, type Arrival, PASSWORD_RULE } from './accounts.ts';
import { createMinuteLimit, type FailedSignIns, type Lockouts } from './lockouts.ts';
import { createOpenIdSignIn, type OidcConfig, openIdPath } from './openid-connect.ts';
import {
  invitationEndedPage,
  invitationPage,
  type SignInWords,
  signInPage,
  signOutPage,
} from './pages/sign-in.ts';
import {
  clearSessionCookie,
  clientOf,
  isOverTls,
  type OperatorSessions,
  readSessionCookie,
  writeSessionCookie,
} from './sessions.ts';
import { keepTarget, takeTarget } from './target.ts';

/**
 * Reads fields of a form or query. A field that is missing or repeated is empty. Characters that Postgres cannot store are
 * replaced, so that a name with one of them is an unknown name.
 */
function readNamed<Name extends string>(form: unknown, ...names: Name[]): Record<Name, string> {
  const given = (form ?? {}) as Record<string, unknown>;
  const values = names.map((name) => [name, typeof given[name] === 'string' ? storable(given[name]) : '']);
  return Object.fromEntries(values);
}

/** Path of the sign-in form with a notice that the password was set. */
const AFTER_INVITATION = '/sign-in?password=set';

/** Serves invitation links: the user sets a password and then signs in with it. */
function createInvitation(accounts: Accounts, log: Log): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  const readForm = express.urlencoded({ extended: false, limit: 8192 });

  router.get('/invitation', async (request, response) => {
    const { token } = readNamed(request.query, 'token');
    response.set('Cache-Control', 'no-store');
    const email = await accounts.invited(token);
    if (email === undefined) response.status(410).send(invitationEndedPage());
    else response.send(invitationPage({ token, email, rule: PASSWORD_RULE }));
  });

  router.post('/invitation', readForm, async (request, response) => {
    const { token, password, again } = readNamed(request.body, 'token', 'password', 'again');
    const email = await accounts.invited(token);
    if (email === undefined) {
      response.status(410).send(invitationEndedPage());
      return;
    }
    const result =
      password === again
        ? await accounts.accept(token, password, clientOf(request))
        : { problem: 'The two passwords differ.' };
    if (result === 'ended') response.status(410).send(invitationEndedPage());
    else if (result === 'done') {
      log.info('an invitation to the console was accepted');
      response.redirect(303, AFTER_INVITATION);
    } else response.status(400).send(invitationPage({ token, email, rule: PASSWORD_RULE }, result.problem));
  });

  return router;
}

/** Maximum sign-ins per user and minute. Each creates a session and audit entries. */
const MAX_SIGN_INS = 30;

export interface Account {
  user: string;
  password: string;
}

export interface SignInOptions {
  account: Account;
  accounts: Accounts;
  /** Sessions of BOARD_USER. Sessions of accounts are in the store. */
  operators: OperatorSessions;
  lockouts: Lockouts;
  failures: FailedSignIns;
  /** Settings of the OpenID provider; OIDC_ISSUER is empty if there is none. */
  oidc: OidcConfig;
  /** Whether this process has detected that Postgres does not answer. */
  isPostgresAway(): boolean;
  log: Log;
  /** Log for requests without a session. */
  strangers: StrangersLog;
}

/**
 * Creates the routes for signing in and out. /sign-in and /invitation are public. All later routes need a session, and
 * find the viewer in `response.locals.viewer`.
 */
export function createSignIn({
  account,
  accounts,
  operators,
  lockouts,
  failures,
  oidc,
  isPostgresAway,
  log,
  strangers,
}: SignInOptions): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  /**
   * Returns the viewer of the session cookie. BOARD_USER can use the console without Postgres, but then sees no
   * workspaces.
   */
  async function arrived(request: Request): Promise<Viewer | undefined> {
    const secret = readSessionCookie(request);
    const client = clientOf(request);
    const session = operators.find(secret, client);
    if (!session) return accounts.arrived(secret, client);
    const viewer = await unlessUnavailable(isPostgresAway, () => accounts.operator(account.user)).catch(() =>
      namelessOperator(account.user),
    );
    return { ...viewer, sessionId: session.id };
  }

  /**
   * Checks name and password and starts a session.
   * @returns the cookie's value; undefined if they are wrong
   */
  async function begin(given: Account, isOperator: boolean, arrival: Arrival): Promise<string | undefined> {
    const { client, previous } = arrival;
    if (!isOperator) {
      const secret = await accounts.signIn(
        { email: given.user.toLowerCase(), password: given.password },
        arrival,
      );
      if (secret !== undefined) leaveOperator(arrival);
      return secret;
    }
    if (!isAccount(given, account)) return undefined;
    if (!leaveOperator(arrival)) accounts.leave(previous, account.user, client);
    accounts.auditOperator('sessions.begin', account.user, client);
    log.info('signed in to the console');
    return operators.open(client);
  }

  /**
   * Ends the browser's previous session if it was a session of BOARD_USER.
   * @returns whether it was
   */
  function leaveOperator({ client, previous }: Arrival): boolean {
    if (operators.leave(previous) === undefined) return false;
    accounts.auditOperator('sessions.end', account.user, client);
    return true;
  }

  const arrivalOf = (request: Request): Arrival => ({
    client: clientOf(request),
    previous: readSessionCookie(request),
  });

  const signIns = createMinuteLimit(MAX_SIGN_INS);
  const openId = openIdPath(oidc);
  const isSecure = oidc.BOARD_URL.startsWith('https:');
  const page = (words: SignInWords = {}) => signInPage({ ...words, openId });

  // The form has only a user name and a password.
  const readForm = express.urlencoded({ extended: false, limit: 4096 });

  router.get('/sign-in', async (request, response) => {
    if (await arrived(request).catch(() => undefined)) response.redirect(303, '/');
    else if (readNamed(request.query, 'password').password === 'set')
      response.send(page({ notice: 'Your password is set. Sign in with it.' }));
    else response.send(page());
  });

  router.post('/sign-in', readForm, async (request, response) => {
    const { user, password } = readNamed(request.body, 'user', 'password');
    // A name without @ can only mean BOARD_USER, so all such names share one lockout.
    const isOperator = user === account.user || !user.includes('@');
    const lockout = isOperator ? lockouts.ofOperator : lockouts.of(user.toLowerCase());
    const seconds = lockout.secondsLeft();
    if (seconds > 0) {
      response.set('Retry-After', String(seconds)).status(429);
      response.send(page({ problem: `Too many wrong passwords. Try again in ${seconds} s.`, user }));
      return;
    }
    const name = isOperator ? '' : user.toLowerCase();
    if ((!isOperator && accounts.isBusy()) || signIns.secondsLeft(name) > 0) {
      response.set('Retry-After', '1').status(429);
      response.send(page({ problem: 'Too many people are signing in. Try again.', user }));
      return;
    }
    lockout.failed();
    const arrival = arrivalOf(request);
    const secret = await begin({ user, password }, isOperator, arrival);
    if (secret !== undefined) {
      lockout.succeeded();
      signIns.count(name);
      writeSessionCookie(response, secret, isOverTls(request));
      response.redirect(303, takeTarget(request, response, isSecure));
    } else {
      failures.note(isOperator ? undefined : user.toLowerCase(), arrival.client);
      lockout.answered();
      strangers.line(
        'warn',
        { address: request.socket.remoteAddress },
        'wrong user or password for the console',
      );
      response.status(401).send(page({ problem: 'Wrong user or password.', user }));
    }
  });

  router.use(
    createOpenIdSignIn({
      ...{ config: oidc, page: (problem) => page({ problem }) },
      warn: (members, text) => strangers.line('warn', members, text),
      async enter(request, response, proved) {
        const arrival = arrivalOf(request);
        if (signIns.secondsLeft(proved.email) > 0) return 'busy';
        const entered = await accounts.signInProved(proved, arrival);
        if ('refused' in entered) {
          failures.note(proved.email, arrival.client, entered.companyId);
          return entered.refused;
        }
        signIns.count(proved.email);
        leaveOperator(arrival);
        writeSessionCookie(response, entered.secret, oidc.BOARD_URL.startsWith('https:'));
        response.redirect(303, takeTarget(request, response, isSecure));
        return 'done';
      },
    }),
  );

  router.use(createInvitation(accounts, log));

  router.use(async (request: Request, response: Response, next) => {
    // Loaded for each request, so that deactivation, deletion and sign-out take effect immediately.
    const viewer = await arrived(request);
    if (viewer) {
      response.locals.viewer = viewer;
      // For responses that outlive the check, for example event streams.
      response.locals.again = () => arrived(request);
      return next();
    }
    if (request.method === 'GET' && request.accepts(['json', 'html']) === 'html') {
      keepTarget(request, response, isSecure);
      response.redirect(303, '/sign-in');
    } else response.status(401).json({ message: 'Sign in to the console first.' });
  });

  router.get('/sign-out', (_request, response) => {
    const { user, full } = response.locals.viewer as Viewer;
    response.send(signOutPage({ user, readOnly: !full }));
  });

  router.post('/sign-out', async (request, response) => {
    const viewer = response.locals.viewer as Viewer;
    if (viewer.accountId !== undefined) await accounts.signOut(viewer, clientOf(request));
    else {
      operators.close(viewer.sessionId);
      accounts.auditOperator('sessions.end', viewer.user, clientOf(request));
    }
    clearSessionCookie(response);
    response.redirect(303, '/sign-in');
  });

  return router;
}

/** Compares user and password in constant time, regardless of which one differs. */
function isAccount(given: Account, { user, password }: Account): boolean {
  const rightUser = equal(given.user, user);
  const rightPassword = equal(given.password, password);
  return rightUser && rightPassword;
}

function equal(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

/** Hashes both sides to the same length, because timingSafeEqual requires it. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
