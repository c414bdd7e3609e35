import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { BrowserContext, Page } from 'playwright-core';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { toProfileId } from '../../src/profile/identifier.ts';
import { newInvitation } from '../../src/store/credentials.ts';
import { createAccount } from '../setup/access.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { type Console, openConsole } from './console-scene.ts';
import { account, read } from './installation.ts';
import { DEFAULT_COMPANY } from './people.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What runs, or loads something, wherever it is not escaped. */
const script = '<img src="/healthz?x" onerror="document.title=\'run\'"><script>document.title="run"</script>';

const MOST_BYTES = 150_000;

describe('the console in a browser', () => {
  let scene: Console;
  let browser: BrowserContext;
  let letter = '';
  let person = '';
  const [team, set] = [uuidv7(), uuidv7()];
  beforeAll(async () => {
    scene = await openConsole();
    const { shop, user, query, letterIn, createUser } = scene;
    await query(
      `update profiles set custom_attributes = $2, first_name = $3, last_name = 'مريم الزهراء' where id = $1`,
      toProfileId(user),
      { [script]: script, long: 'x'.repeat(100_000), nested: { list: [{ deep: script }] } },
      script,
    );
    for (let n = 0; n < 60; n++)
      await query(
        `insert into events values ($1, $2, $3, $4, now(), 'app', $5)`,
        ...[shop, uuidv7(), toProfileId(user), `viewed ${script}`, { colour: script }],
      );
    await createUser(shop, script);
    await query('insert into teams (id, workspace_id, name) values ($1, $2, $3)', team, shop, script);
    await query(
      "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, $3, '{view_user_profile}')",
      ...[set, DEFAULT_COMPANY, script],
    );
    const appGroups = [
      ...[
        { workspace: shop, permissions: [], permissionSet: set, teams: [{ team, permissions: ['admin'] }] },
      ],
    ];
    person = (await scene.people.arrive([], { appGroups })).id;
    await query('update accounts set given_name = $2 where id = $1', person, script);
    await query('insert into usage (workspace_id, day, lane, events) values ($1, now(), 0, 5)', shop);
    await scene.recordPast(script);
    letter = await letterIn(shop, { reason: `hostile ${script}`, identifiers: [{ external_id: 'user-1' }] });
    browser = await openBrowser();
  }, 300_000);
  afterAll(async () => {
    await browser?.close();
    await scene?.installation.stop();
  });

  async function signIn(page: Page, user = account.user, password = account.password) {
    await page.context().clearCookies();
    await page.goto(`${scene.board.url}/sign-in`);
    await page.getByLabel('Email address or user').fill(user);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
  }

  /** Each kind of page, with data in it and without. */
  const places = () => [
    ...['/', '/?range=week', '/history', '/users', '/users?q=user-1', '/users?q=nobody'],
    ...[`/users/${scene.user}`, `/users/${scene.user}/delete`],
    ...['/requests', '/requests?id=none', `/requests/${uuidv7()}`],
    ...['/dead-letters', '/dead-letters?state=discarded', `/dead-letters/${letter}`],
    ...['/syncs', `/syncs/${scene.integration}`, `/syncs/${scene.integration}/runs/${scene.run}`],
    ...['/groups', '/groups?workspace=shop&user=user-1', '/preference-centers?workspace=shop'],
    ...[
      `/preference-centers/${scene.center}`,
      `/preference-centers/${scene.center}?user=user-1&screen=desktop&template=confirmation`,
    ],
    ...['/accounts', '/accounts?q=nobody', `/accounts/${person}`, '/teams', `/teams/${team}`],
    ...[`/permission-sets/${set}`, '/workspaces', `/workspaces/${scene.shop}`, '/keys', `/keys/${scene.key}`],
    ...['/audit', '/audit?action=users.block', '/sessions', '/sessions?of=all'],
    ...['/nowhere', '/sign-out'],
  ];

  const findings = (page: Page): Promise<string[]> =>
    page.evaluate(
      `${axe};axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) =>
        nodes.map(({ html, failureSummary }) => id + ': ' + html.slice(0, 200) + failureSummary)))`,
    );

  test('no page has a finding of axe, a script of somebody else, or more than the screen is wide', async () => {
    const page = await browser.newPage();
    const asked: string[] = [];
    const troubles: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    page.on('pageerror', ({ message }) => troubles.push(message));
    page.on('console', (line) => /Content Security Policy/.test(line.text()) && troubles.push(line.text()));
    expect(await page.goto(`${scene.board.url}/sign-in`).then(() => findings(page))).toEqual([]);
    await signIn(page);
    for (const [width, colorScheme] of [
      [1280, 'light'],
      [390, 'dark'],
    ] as const) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme });
      for (const place of places()) {
        await page.goto(scene.board.url + place);
        expect([place, width, await findings(page)]).toEqual([place, width, []]);
        expect([place, await page.title()]).not.toEqual([place, 'run']);
        expect([place, await page.locator('img').count()]).toEqual([place, 0]);
        const wide = await page.evaluate('document.documentElement.scrollWidth');
        expect([place, Number(wide) <= width]).toEqual([place, true]);
      }
    }
    expect(troubles).toEqual([]);
    expect(asked.filter((url) => !url.startsWith(`${scene.board.url}/`))).toEqual([]);
    expect(asked.filter((url) => url.includes('healthz?x'))).toEqual([]);
    await page.close();
  }, 120_000);

  test('the first page of a user has less than 150 KB in all, script and style included', async () => {
    const page = await browser.newPage();
    await signIn(page);
    const sizes: Promise<number>[] = [];
    page.on('response', (response) => sizes.push(response.body().then(({ length }) => length)));
    await page.goto(`${scene.board.url}/users/${scene.user}`);
    const all = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    expect(all).toBeLessThan(MOST_BYTES);
    await page.close();
  });

  test('by keyboard alone one finds a user and opens the page', async () => {
    const page = await browser.newPage();
    await signIn(page);
    await page.goto(`${scene.board.url}/`);
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the content');
    for (let press = 0; press < 3; press++) await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Users');
    await page.keyboard.press('Enter');
    await page.getByRole('searchbox').waitFor();
    await page.keyboard.type('user-1');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Users who were found' }).waitFor();
    await page.getByRole('link', { name: 'user-1', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'user-1', exact: true }).waitFor();
    await page.close();
  });

  test('times stand in the zone of the reader, with UTC beside them; the theme that one chose stays', async () => {
    const page = await browser.newPage();
    await signIn(page);
    await page.goto(`${scene.board.url}/users/${scene.user}`);
    const time = page.locator('time').first();
    const iso = (await time.getAttribute('datetime'))!;
    expect(await time.getAttribute('title')).toBe(`${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`);
    const local = `new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' }).format(new Date('${iso}'))`;
    expect(await time.textContent()).toContain((await page.evaluate<string>(local)).split(' ')[0]);
    const themes = async () => [
      await page.evaluate('document.documentElement.dataset.theme'),
      await page.evaluate('getComputedStyle(document.body).backgroundColor'),
    ];
    await page.emulateMedia({ colorScheme: 'light' });
    const [, light] = await themes();
    await page.getByRole('button', { name: 'Dark or light' }).click();
    const [name, dark] = await themes();
    expect([name, dark === light]).toEqual(['dark', false]);
    await page.goto(`${scene.board.url}/`);
    expect(await themes()).toEqual(['dark', dark]);
    await page.close();
  });

  test('without script everything is read, and an action is made', async () => {
    const { installation, letterIn, shop } = scene;
    const plain = await openBrowser({ javaScriptEnabled: false });
    try {
      const page = await plain.newPage();
      await signIn(page);
      for (const place of places()) {
        await page.goto(scene.board.url + place);
        expect([place, await page.locator('h1').count()]).toEqual([place, 1]);
      }
      await page.goto(`${scene.board.url}/users/${scene.user}`);
      expect(await page.locator('time').first().textContent()).toMatch(
        /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/,
      );
      const id = await letterIn(shop, { reason: 'one that is chosen' });
      await page.goto(`${scene.board.url}/dead-letters`);
      await page.getByRole('link', { name: 'one that is chosen' }).click();
      await page.getByRole('checkbox').check();
      await page.getByRole('button', { name: 'Replay the chosen' }).click();
      await page.getByRole('status').getByText('Handed to the workers again').waitFor();
      expect((await read(installation.database, id)).state).toBe('replaying');
    } finally {
      await plain.close();
    }
  });

  test('a user is deleted only once the word is typed', async () => {
    const { shop, createUser } = scene;
    await createUser(shop, 'to be deleted');
    const page = await browser.newPage();
    await signIn(page);
    await page.goto(`${scene.board.url}/users?q=to+be+deleted`);
    await page.getByRole('link', { name: 'to be deleted' }).click();
    await page.getByRole('link', { name: 'Delete…' }).click();
    const button = page.getByRole('button', { name: 'Delete for good' });
    expect(await button.isDisabled()).toBe(true);
    const word = (await page.locator('[data-word]').getAttribute('data-word'))!;
    await page.locator('[data-word]').fill(word);
    await button.click();
    await page.getByRole('heading', { name: 'Request' }).waitFor();
    // A queue that is busy may not say at the first look what waits.
    await waitUntil(
      async () =>
        (await page.getByText(/in work, or next|^\d envelopes?$/).isVisible()) || !(await page.reload()),
      { what: 'where the delete stands in its lane', deadline: 30_000 },
    );
    await page.close();
  });

  test('an invited person sets a password, signs in with it, sees what the permissions give, and is out when deleted', async () => {
    const { database } = scene.installation;
    const { url } = scene.board;
    const id = await createAccount(database.pool as never, DEFAULT_COMPANY, 'ada@example.com');
    const { secret, hash, expiresAt } = newInvitation(new Date());
    await database.prisma.account.update({
      where: { id },
      data: { invitationHash: hash, invitationExpiresAt: expiresAt },
    });
    await browser.clearCookies();
    const page = await browser.newPage();
    await page.goto(`${url}/invitation?token=${secret}`);
    expect(await findings(page)).toEqual([]);
    expect(await page.getByLabel('Email address').inputValue()).toBe('ada@example.com');
    await page.getByText('12 characters or more').waitFor();
    const choose = async (password: string) => {
      await page.getByLabel('New password').fill(password);
      await page.getByLabel('Once more').fill(password);
      await page.getByRole('button', { name: 'Set the password' }).click();
    };
    await choose('short');
    await page.getByRole('alert').getByText('12 to 128 characters').waitFor();
    await choose('seven wooden ladders');
    await page.getByRole('status').getByText('Your password is set.').waitFor();
    await signIn(page, 'ada@example.com', 'seven wooden ladders');
    const names = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
    expect(names).toEqual(['Health', 'Queues']);

    await page.goto(`${url}/sign-out`);
    await page.getByText('signed in as ada@example.com, with the permissions that you have').waitFor();
    await database.prisma.account.delete({ where: { id } });
    await page.goto(url);
    expect(page.url()).toBe(`${url}/sign-in`);
  });

  test('Bull Board shows the lanes below /queues, asks nobody else, and leads back', async () => {
    const page = await browser.newPage();
    const asked = new Set<string>();
    page.on('response', (response) => asked.add(new URL(response.url()).origin));
    await signIn(page);
    await page.getByRole('link', { name: 'Queues' }).click();
    for (const lane of [0, 1, 2, 3]) await page.getByText(`Lane ${lane}`).waitFor();
    await page.getByRole('link', { name: 'dead-letters' }).click();
    await waitUntil(() => page.url().includes('/queues/queue/dead-letters'), { what: 'its page' });
    expect([...asked]).toEqual([scene.board.url]);
    await page.locator('header button[aria-haspopup=menu]').click();
    await page.getByRole('menuitem', { name: 'Console' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
    await page.goto(`${scene.board.url}/sign-out`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${scene.board.url}/sign-in`);
    await page.close();
  });
});
