import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Request, Response, Router } from 'express';
import express from 'express';
import type { Log, StrangersLog } from '../platform/log.ts';
import { namelessOperator, type Viewer } from './access.ts';
import { type Accounts, PASSWORD_RULE } from './accounts.ts';
import { invitationEndedPage, invitationPage, signInPage, signOutPage } from './pages/sign-in.ts';
import {
  clearSessionCookie,
  OPERATOR,
  readSessionCookie,
  type Sessions,
  writeSessionCookie,
} from './sessions.ts';

/** Fields of a form that was sent; one that is missing, or came twice, is empty. */
function readNamed<Name extends string>(form: unknown, ...names: Name[]): Record<Name, string> {
  const given = (form ?? {}) as Record<string, unknown>;
  const values = names.map((name) => [name, typeof given[name] === 'string' ? given[name] : '']);
  return Object.fromEntries(values);
}

/** The form to sign in, with a word that the password is set. */
export const AFTER_INVITATION = '/sign-in?password=set';

/** Where the link of an invitation leads: one sets a password there, and signs in with it. */
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
      password === again ? await accounts.accept(token, password) : { problem: 'The two are not the same.' };
    if (result === 'ended') response.status(410).send(invitationEndedPage());
    else if (result === 'done') {
      log.info('an invitation to the dashboard was accepted');
      response.redirect(303, AFTER_INVITATION);
    } else response.status(400).send(invitationPage({ token, email, rule: PASSWORD_RULE }, result.problem));
  });

  return router;
}

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
  /** For what is asked by nobody who is known. */
  strangers: StrangersLog;
}

/**
 * Signing in and out. Serves /sign-in and /invitation to everybody; the rest needs the session that /sign-in
 * opens. Behind it `response.locals.viewer` says who it is, and what this person may do.
 */
export function createSignIn({
  account,
  accounts,
  sessions,
  lockouts,
  log,
  strangers,
}: SignInOptions): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  // Gets in without Postgres, and sees what can be seen then.
  const operator = () => accounts.operator(account.user).catch(() => namelessOperator(account.user));
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
    const lockout = isOperator ? lockouts.ofOperator : lockouts.of(user.toLowerCase());
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
      strangers.line(
        'warn',
        { address: request.socket.remoteAddress },
        'wrong user or password for the dashboard',
      );
      response.status(401).send(signInPage({ problem: 'Wrong user or password.', user }));
    }
  });

  router.use(createInvitation(accounts, log));

  router.use(async (request: Request, response: Response, next) => {
    const id = readSessionCookie(request);
    const whose = sessions.whoseIs(id);
    // Looked up each time, so that whoever is deactivated or deleted is out at once.
    const viewer = whose === OPERATOR ? await operator() : whose && (await accounts.rightsOf(whose));
    if (viewer) {
      response.locals.viewer = viewer;
      return next();
    }
    sessions.close(id);
    if (request.method === 'GET' && request.accepts(['json', 'html']) === 'html')
      response.redirect(303, '/sign-in');
    else response.status(401).json({ message: 'Sign in to the dashboard first.' });
  });

  router.get('/sign-out', (_request, response) => {
    const { user, full } = response.locals.viewer as Viewer;
    response.send(signOutPage({ user, readOnly: !full }));
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

/** A person may mistype this often before the first wait. */
const FREE_FAILURES = 5;

/** The first wait; each further failure doubles it. */
const FIRST_WAIT_MS = 1000;

/** Short enough that the owner gets in again within a minute, long enough that guessing is hopeless. */
const LONGEST_WAIT_MS = 60_000;

/**
 * Slows guessing down: after some wrong passwords in a row nobody can sign in to an account for a while, with the
 * right one neither, whatever address a guess comes from. Whoever is signed in stays so.
 */
export function createLockout(now: () => number = Date.now) {
  let failures = 0;
  let lockedUntil = 0;

  function beginWait(): void {
    if (failures < FREE_FAILURES) return;
    lockedUntil = now() + Math.min(FIRST_WAIT_MS * 2 ** (failures - FREE_FAILURES), LONGEST_WAIT_MS);
  }

  return {
    /** Seconds to wait until the next attempt, rounded up; 0: none. */
    secondsLeft(): number {
      return Math.max(0, Math.ceil((lockedUntil - now()) / 1000));
    },

    /** Counts an attempt, before it is compared: attempts at the same moment are all counted. */
    failed(): void {
      failures++;
      beginWait();
    },

    /** Begins the wait anew when the attempt has been answered: comparing a password takes a part of it. */
    answered: beginWait,

    succeeded(): void {
      failures = 0;
      lockedUntil = 0;
    },
  };
}

type Lockout = ReturnType<typeof createLockout>;

/** Without a guess for this long it begins anew; whoever goes on guessing has one a minute, which is more. */
const FORGOTTEN_MS = 3_600_000;

/**
 * A lockout for each name, whether there is such an account or not: the answer does not tell. Names share 65,536 slots,
 * so that none ever has to give way to another. Which ones do only this process knows.
 */
export function createLockouts(now: () => number = Date.now) {
  const secret = randomBytes(32);
  const slots = new Map<number, { lockout: Lockout; triedAt: number }>();

  function find(slot: number): Lockout | undefined {
    const found = slots.get(slot);
    if (found && now() - found.triedAt < FORGOTTEN_MS) return found.lockout;
    slots.delete(slot);
    return undefined;
  }

  return {
    /** Of whoever is in the settings: no guess at another name has to do with it. */
    ofOperator: createLockout(now),

    of(name: string): Lockout {
      const slot = createHmac('sha256', secret).update(name).digest().readUInt16BE(0);
      const remembered = () => {
        const lockout = find(slot) ?? createLockout(now);
        slots.set(slot, { lockout, triedAt: now() });
        return lockout;
      };
      return {
        secondsLeft: () => find(slot)?.secondsLeft() ?? 0,
        failed: () => remembered().failed(),
        answered: () => remembered().answered(),
        succeeded: () => void slots.delete(slot),
      };
    },

    /** Slots that are remembered. */
    size: () => slots.size,
  };
}

type Lockouts = ReturnType<typeof createLockouts>;
