import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hashPassword, isPassword, passwordProblem } from '../../src/board/accounts.ts';
import { createLockouts } from '../../src/board/lockouts.ts';
import type { Board } from '../../src/board/server.ts';
import { createAccount } from '../setup/access.ts';
import { createVisitor } from './browser-session.ts';
import { account, createInstallation, type Installation } from './installation.ts';
import { createPeople, DEFAULT_COMPANY, PASSWORD, statusOfQueues } from './people.ts';

let installation: Installation;
let board: Board;
let people: ReturnType<typeof createPeople>;
beforeAll(async () => {
  installation = await createInstallation('postgres');
  board = await installation.startBoard();
  people = createPeople(installation, board);
});
afterAll(() => installation.stop());

const query = (text: string, values: unknown[] = []) => installation.database.pool.query(text, values);
const invite: typeof people.invite = (...given) => people.invite(...given);
const accept: typeof people.accept = (...given) => people.accept(...given);
const arrive: typeof people.arrive = (...given) => people.arrive(...given);

describe('an invitation', () => {
  test('an invitation sets the password once, and then its link stops working', async () => {
    const id = await createAccount(installation.database.pool as never, DEFAULT_COMPANY);
    const token = await invite(id);
    const page = await createVisitor(board).get(`/invitation?token=${token}`);
    expect(page.status).toBe(200);
    expect(page.headers.get('cache-control')).toBe('no-store');
    expect(await page.text()).toContain('New password');
    const answers = await Promise.all([accept(token), accept(token)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([303, 410]);
    expect((await accept(token)).status).toBe(410);
    expect((await createVisitor(board).get(`/invitation?token=${token}`)).status).toBe(410);
    const { rows } = await query('select password_hash from accounts where id = $1', [id]);
    expect(rows[0].password_hash).toMatch(/^scrypt\$32768\$8\$3\$[\w-]{22}\$[\w-]{43}$/);
  });

  test('an invitation ends after three days, when it is replaced, and with its account', async () => {
    const id = await createAccount(installation.database.pool as never, DEFAULT_COMPANY);
    const old = await invite(id, new Date(Date.now() - 3 * 86_400_000 - 1000));
    expect((await accept(old)).status).toBe(410);
    const replaced = await invite(id);
    const token = await invite(id);
    expect((await accept(replaced)).status).toBe(410);
    await query('update accounts set active = false where id = $1', [id]);
    expect((await accept(token)).status).toBe(410);
    await query('delete from accounts where id = $1', [id]);
    expect((await accept(token)).status).toBe(410);
  });

  test.each(['', 'x', 'x'.repeat(43), '"><script>', `${'x'.repeat(43)}"`])(
    'an invalid invitation token gets 410 and is not repeated on the page: %j',
    async (token) => {
      const page = await createVisitor(board).get(`/invitation?token=${encodeURIComponent(token)}`);
      expect(page.status).toBe(410);
      if (token.length > 1) expect(await page.text()).not.toContain(token);
    },
  );

  test('a rejected password gets 400 with the rule, and the invitation stays valid', async () => {
    const id = await createAccount(installation.database.pool as never, DEFAULT_COMPANY);
    const token = await invite(id);
    for (const [password, again, rule] of [
      ['short', 'short', '12 to 128 characters'],
      [PASSWORD, `${PASSWORD}!`, 'differ'],
    ] as const) {
      const answer = await accept(token, password, again);
      expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining(rule)]);
    }
    expect((await accept(token)).status).toBe(303);
  });

  test('accepting an invitation ends the sessions of the old password', async () => {
    const { id, visitor } = await arrive(['admin']);
    await accept(await invite(id), 'another long password');
    expect(await statusOfQueues(visitor)).toBe(401);
  });
});

describe('an account', () => {
  test('an account signs in by email address in any case, and the sign-in time is recorded', async () => {
    const { id, email } = await arrive();
    const before = Date.now();
    expect((await createVisitor(board).signIn(email.toUpperCase(), PASSWORD)).status).toBe(303);
    const { rows } = await query('select last_sign_in_at, version from accounts where id = $1', [id]);
    expect(rows[0].last_sign_in_at.getTime()).toBeGreaterThanOrEqual(before - 1000);
    // A changed entity tag shows that the SCIM representation has changed.
    expect(rows[0].version).toBe(3);
  });

  test('a wrong password, an account without a password and an unknown user get the same response', async () => {
    const { email } = await arrive();
    await createAccount(installation.database.pool as never, DEFAULT_COMPANY, 'without@example.com');
    const pages = new Set<string>();
    for (const [user, password] of [
      [email, 'wrong password here'],
      ['without@example.com', ''],
      ['nobody@example.com', PASSWORD],
    ] as const) {
      const answer = await createVisitor(board).signIn(user, password);
      expect(answer.status).toBe(401);
      // The form keeps the submitted user name.
      pages.add((await answer.text()).replace(user, '…'));
    }
    expect(pages.size).toBe(1);
  });

  test('accounts with the same address in two companies have separate passwords', async () => {
    const { email } = await arrive();
    const { rows } = await query("insert into companies values (gen_random_uuid(), 'two') returning id");
    const other = await createAccount(installation.database.pool as never, rows[0].id, email);
    await accept(await invite(other), 'another long password');
    for (const password of [PASSWORD, 'another long password'])
      expect((await createVisitor(board).signIn(email, password)).status).toBe(303);
  });

  test.each([
    ['deactivated', 'update accounts set active = false, session_epoch = session_epoch + 1 where id = $1'],
    ['deleted', 'delete from accounts where id = $1'],
  ])('an account that is %s is signed out at once and cannot sign in', async (_, statement) => {
    const { id, email, visitor } = await arrive(['admin']);
    expect(await statusOfQueues(visitor)).toBe(200);
    await query(statement, [id]);
    expect(await statusOfQueues(visitor)).toBe(401);
    expect((await createVisitor(board).signIn(email, PASSWORD)).status).toBe(401);
    await query('update accounts set active = true where id = $1', [id]);
    expect(await statusOfQueues(visitor)).toBe(401);
  });

  test('an account that was deactivated and reactivated between two requests is signed out', async () => {
    const { id, visitor } = await arrive(['admin']);
    await query('update accounts set session_epoch = session_epoch + 1 where id = $1', [id]);
    expect(await statusOfQueues(visitor)).toBe(401);
  });

  test('an account can sign out', async () => {
    const { visitor } = await arrive();
    expect((await visitor.signOut()).status).toBe(303);
    expect(await statusOfQueues(visitor)).toBe(401);
  });
});

describe('password guessing', () => {
  test('after five wrong passwords only that account has to wait', async () => {
    const { email } = await arrive();
    const { email: other } = await arrive();
    for (let guess = 0; guess < 5; guess++)
      expect((await createVisitor(board).signIn(email, 'a wrong password')).status).toBe(401);
    const answer = await createVisitor(board).signIn(email.toUpperCase(), PASSWORD);
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '1']);
    expect((await createVisitor(board).signIn(other, PASSWORD)).status).toBe(303);
    expect((await createVisitor(board).signIn()).status).toBe(303);
  });

  test('of fifty concurrent guesses at most five passwords are compared', async () => {
    const statuses = await Promise.all(
      Array.from(
        { length: 50 },
        async () => (await createVisitor(board).signIn('all@example.com', 'guess')).status,
      ),
    );
    expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(5);
  });

  test('BOARD_USER can sign in while accounts cannot be read', async () => {
    const visitor = createVisitor(board);
    await query('alter table accounts rename to away');
    try {
      expect((await visitor.signIn(account.user, account.password)).status).toBe(303);
      expect(await statusOfQueues(visitor)).toBe(200);
    } finally {
      await query('alter table away rename to accounts');
    }
  });

  test('a lockout survives guesses at 96,000 other names, and its wait keeps doubling', () => {
    let now = 0;
    const lockouts = createLockouts(() => now);
    for (let failure = 0; failure < 5; failure++) lockouts.of('first@example.com').failed();
    for (const wait of [1, 2, 4, 8, 16, 32, 60, 60]) {
      for (let name = 0; name < 12_000; name++) lockouts.of(`${wait} ${name}@example.com`).failed();
      expect(lockouts.of('first@example.com').secondsLeft()).toBeGreaterThanOrEqual(wait);
      now += 60_000;
      lockouts.of('first@example.com').failed();
    }
  });

  test('at most 65,536 lockouts are kept, however many names are guessed', () => {
    const lockouts = createLockouts(() => 0);
    for (let name = 0; name < 300_000; name++) lockouts.of(`${name}@example.com`).failed();
    expect(lockouts.size()).toBeLessThanOrEqual(65_536);
  });

  test('only a guess whose password was compared creates a lockout', () => {
    const lockouts = createLockouts(() => 0);
    for (let name = 0; name < 1000; name++) lockouts.of(`${name}@example.com`).secondsLeft();
    expect(lockouts.size()).toBe(0);
  });

  test('wrong guesses are forgotten after an hour without any guess', () => {
    let now = 0;
    const lockouts = createLockouts(() => now);
    const lockout = lockouts.of('first@example.com');
    for (let failure = 0; failure < 4; failure++) lockout.failed();
    now += 3_600_000 - 1;
    lockout.failed();
    expect(lockout.secondsLeft()).toBe(1);
    now += 3_600_000;
    for (let failure = 0; failure < 4; failure++) lockout.failed();
    expect(lockout.secondsLeft()).toBe(0);
  });

  test('guesses at many names do not affect the lockout of BOARD_USER', () => {
    const lockouts = createLockouts(() => 0);
    for (let name = 0; name < 300_000; name++) lockouts.of(`${name}@example.com`).failed();
    expect(lockouts.ofOperator.secondsLeft()).toBe(0);
    for (let failure = 0; failure < 5; failure++) lockouts.ofOperator.failed();
    for (let name = 0; name < 100_000; name++) lockouts.of(`${name}@example.com`).succeeded();
    expect(lockouts.ofOperator.secondsLeft()).toBe(1);
  });
});

describe('passwords', () => {
  test('equal passwords get different salted scrypt hashes, and each matches only its password', async () => {
    const [one, two] = await Promise.all([
      hashPassword('caf\u00e9 au lait x'),
      hashPassword('caf\u00e9 au lait x'),
    ]);
    expect(one).not.toBe(two);
    // The same letters in another Unicode composition.
    expect(await isPassword('cafe\u0301 au lait x', one)).toBe(true);
    expect(await isPassword('caf\u00e9 au lait y', two)).toBe(false);
  });

  test.each([
    ['eleven char', '12 to 128'],
    ['x'.repeat(129), '12 to 128'],
    ['abababababab', 'different characters'],
    ['my lovelace@example.com', 'email address'],
    ['Lovelace was here', 'email address'],
  ])('the password %s is rejected with the rule', (password, rule) => {
    expect(passwordProblem(password, 'lovelace@example.com')).toContain(rule);
  });

  test('a long password of several words is accepted', () => {
    expect(passwordProblem(PASSWORD, 'lovelace@example.com')).toBeUndefined();
  });
});
