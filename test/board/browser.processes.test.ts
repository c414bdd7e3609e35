import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newInvitation } from '../../src/store/credentials.ts';
import { createAccount } from '../setup/access.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import {
  findings,
  type HostileConsole,
  hostile,
  narrow,
  oneOfAKind,
  openHostileConsole,
  signIn,
  troublesOf,
  unjudged,
} from './browser-console.ts';
import { read } from './installation.ts';
import { DEFAULT_COMPANY } from './people.ts';

/** Maximum size of a page in bytes, uncompressed: document, frame, script and style sheet. */
const MAX_BYTES = 150_000;

describe('the console in a browser', () => {
  let scene: HostileConsole;
  let browser: BrowserContext;
  let url = '';
  beforeAll(async () => {
    scene = await openHostileConsole();
    url = scene.board.url;
    browser = await openBrowser();
  }, 300_000);
  afterAll(async () => {
    await browser?.close();
    await scene?.installation.stop();
  });

  test('pages have no axe finding, foreign request or overflow, and load at most 150 KB', async () => {
    const requested: string[] = [];
    const policy: string[] = [];
    const watched = (one: Page) => {
      one.on('request', (request) => requested.push(request.url()));
      one.on('pageerror', ({ message }) => policy.push(message));
      one.on('console', (line) => /Content Security Policy/.test(line.text()) && policy.push(line.text()));
      return one;
    };
    const page = watched(await browser.newPage());
    await page.goto(`${url}/sign-in`);
    expect(await troublesOf(page)).toEqual([]);
    await signIn(page, url);
    const assets = await page.evaluate<number[]>(
      `Promise.all([...document.querySelectorAll('link[rel=stylesheet], script[src]')].map(({ href, src }) =>
        fetch(href ?? src).then((answer) => answer.arrayBuffer()).then(({ byteLength }) => byteLength)))`,
    );
    expect(assets).toHaveLength(2);
    const left = [...scene.routes];
    const judged = new Set(oneOfAKind(scene.routes));
    const visitPages = async (one: Page) => {
      const documents: Promise<number>[] = [];
      one.on('response', (response) => {
        if (response.request().resourceType() === 'document')
          documents.push(response.body().then(({ length }) => length));
      });
      for (let path = left.shift(); path !== undefined; path = left.shift()) {
        await one.goto(url + path);
        const sizes = [...assets, ...(await Promise.all(documents.splice(0)))];
        expect([path, sizes.length > 2]).toEqual([path, true]);
        const bytes = sizes.reduce((sum, size) => sum + size, 0);
        expect([path, bytes, bytes < MAX_BYTES]).toEqual([path, bytes, true]);
        const screens = judged.has(path) ? undefined : unjudged;
        expect([path, await troublesOf(one, screens)]).toEqual([path, []]);
      }
    };
    await visitPages(page);
    expect(policy).toEqual([]);
    expect(requested.filter((one) => !one.startsWith(`${url}/`))).toEqual([]);
    expect(requested.filter((one) => one.includes('healthz?x'))).toEqual([]);
    // Right-to-left text must not change the direction of the text around it.
    await page.goto(`${url}/users/${scene.user}`);
    const value = page.getByText('in its place');
    const name = value.locator('xpath=../*[1]');
    expect((await value.boundingBox())!.x).toBeGreaterThan((await name.boundingBox())!.x);
    await page.close();
  }, 240_000);

  test('pages after a form error, a count or a new secret have no axe finding', async () => {
    const page = await browser.newPage();
    await signIn(page, url);
    const settles = async (route: string) => expect([route, await troublesOf(page)]).toEqual([route, []]);
    await page.goto(`${url}/segments?workspace=${scene.hall}`);
    await page.locator('summary', { hasText: 'Edit the filter as JSON' }).click();
    await page.getByLabel('Filter as JSON').fill('{"all": [}');
    await page.locator('details').getByRole('button', { name: 'Create segment' }).click();
    await page.getByRole('alert').getByText('is not valid JSON').waitFor();
    await settles('a filter that is none');
    await page.getByLabel('Filter as JSON').fill('{"all": []}');
    await page.getByRole('button', { name: 'Count matching users' }).click();
    await page.getByText(/^[\d,]+ of [\d,]+ user/).waitFor();
    await settles('a count');
    await page.goto(`${url}/keys?workspace=${scene.hall}`);
    await page.locator('summary', { hasText: 'Create key' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill(hostile);
    await page.getByLabel('Preset').selectOption('import');
    await page.locator('summary', { hasText: 'Write users' }).click();
    await page.getByRole('checkbox', { name: 'users.merge' }).check();
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByText('Copy the secret now').waitFor();
    await settles('a key that is shown once');
    await page.goto(`${url}${scene.routes.find((one) => one.startsWith('/accounts/'))}`);
    await page.getByRole('button', { name: 'Invite' }).first().click();
    await page.getByText('Send the link only to').waitFor();
    await settles('an invitation that is shown once');
    await page.goto(`${url}/permission-sets`);
    await page.locator('summary', { hasText: 'Create permission set' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('Analysts');
    await page.getByRole('button', { name: 'Create permission set' }).click();
    await page.getByText('Permissions is required').waitFor();
    await settles('a sentence about what will not do');
    await page.close();
  }, 60_000);

  test('pages after a successful or rejected action have no axe finding', async () => {
    const page = await browser.newPage();
    await signIn(page, url);
    for (const [allowlist, shown] of [
      ['nowhere', 'Invalid: nowhere'],
      ['', 'Copy the secret now'],
    ] as const) {
      await page.goto(`${url}/keys?workspace=${scene.hall}`);
      await page.locator('summary', { hasText: 'Create key' }).click();
      await page.locator('[name=name]').fill(hostile);
      await page.locator('[name=ip_allowlist]').fill(allowlist);
      // After an error, the group of the chosen permission is open.
      if (!(await page.locator('[value="users.track"]').isVisible()))
        await page.locator('summary', { hasText: 'Write users' }).click();
      await page.locator('[value="users.track"]').check();
      await page.getByRole('button', { name: 'Create key' }).click();
      await page.getByText(shown).waitFor();
      expect([shown, await troublesOf(page)]).toEqual([shown, []]);
    }
    await page.goto(`${url}/dead-letters/${scene.deadLetter}`);
    const whole = page.locator('details', { hasText: 'Edit the whole object as JSON' });
    await whole.locator('summary').click();
    await whole.getByLabel('JSON').fill('{');
    await whole.getByRole('button', { name: 'Save and replay' }).click();
    await page.getByRole('alert').getByText('The dead letter was not changed').waitFor();
    expect(await troublesOf(page)).toEqual([]);
    await page.goto(url + scene.lettersOfHall);
    await page.getByRole('checkbox').check();
    // A browser accepts white space in a required field, and the server does not.
    await page.getByLabel(/^Reason to discard/).fill(' ');
    await page.getByRole('button', { name: 'Discard selected' }).click();
    await page.getByText('Reason to discard is required').waitFor();
    expect(await troublesOf(page, [narrow])).toEqual([]);
    await page.close();
  });

  test('the menu is whole at 1440 by 900, and marks the current page at any height', async () => {
    const page = await browser.newPage();
    await page.setViewportSize({ width: 1440, height: 900 });
    await signIn(page, url);
    const menu = page.getByRole('navigation', { name: 'Pages' });
    const hidden = () =>
      page.evaluate(
        `(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.querySelector('.side nav'))`,
      );
    for (const [path, line] of [
      ['/accounts', 'Accounts'],
      ['/permission-sets', 'Accounts'],
      ['/scim-tokens', 'Accounts'],
      ['/history', 'Health'],
    ] as const) {
      await page.goto(url + path);
      expect([path, await hidden()]).toEqual([path, 0]);
      expect(await menu.locator('[aria-current]').allInnerTexts()).toEqual([line]);
    }
    await page.goto(`${url}/teams`);
    const tabs = page.getByRole('navigation', { name: 'Accounts' });
    expect(await tabs.getByRole('link').allInnerTexts()).toEqual([
      ...['Accounts', 'Permission sets', 'Teams', 'SCIM tokens'],
    ]);
    expect(await tabs.locator('[aria-current=page]').innerText()).toBe('Teams');
    await page.setViewportSize({ width: 1440, height: 500 });
    await page.reload();
    const bottom = async (one: typeof menu) => {
      const { y, height } = (await one.boundingBox())!;
      return Math.floor(y + height);
    };
    expect(await hidden()).toBeGreaterThan(0);
    expect(await bottom(menu.locator('[aria-current]'))).toBeLessThanOrEqual(await bottom(menu));
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole('button', { name: 'Menu' }).click();
    await menu.getByRole('link', { name: 'API keys' }).click();
    await page.getByRole('heading', { name: 'API keys' }).waitFor();
    await page.close();
  }, 60_000);

  test('times are relative with local time and UTC in the title, and the theme is kept', async () => {
    const page = await browser.newPage();
    await signIn(page, url);
    await page.goto(`${url}/users/${scene.user}`);
    const time = page.locator('time').first();
    const iso = (await time.getAttribute('datetime'))!;
    const title = (await time.getAttribute('title'))!;
    expect(title).toContain(`(${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC)`);
    expect(await time.textContent()).toMatch(/^(?:just now|\d+ (?:sec|min|hr)\. ago)$/);
    const local = `new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' }).format(new Date('${iso}'))`;
    expect(title).toContain((await page.evaluate<string>(local)).split(' ')[0]);
    await page.getByRole('button', { name: 'Relative or full times' }).click();
    expect(title).toContain(await time.textContent());
    await page.getByRole('button', { name: 'Relative or full times' }).click();
    const themes = async () => [
      await page.evaluate('document.documentElement.dataset.theme'),
      await page.evaluate('getComputedStyle(document.body).backgroundColor'),
    ];
    await page.emulateMedia({ colorScheme: 'light' });
    const [, light] = await themes();
    await page.getByRole('button', { name: 'Theme' }).click();
    const [name, dark] = await themes();
    expect([name, dark === light]).toEqual(['dark', false]);
    await page.goto(`${url}/`);
    expect(await themes()).toEqual(['dark', dark]);
    await page.close();
  });

  test('pages can be read and actions work without script', async () => {
    const { installation, letterIn, shop } = scene;
    const plain = await openBrowser({ javaScriptEnabled: false });
    try {
      const page = await plain.newPage();
      await signIn(page, url);
      for (const address of oneOfAKind(scene.routes)) {
        await page.goto(url + address);
        expect([address, await page.locator('h1').count()]).toEqual([address, 1]);
      }
      await page.goto(`${url}/users/${scene.user}`);
      expect(await page.locator('time').first().textContent()).toMatch(
        /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/,
      );
      const id = await letterIn(shop, { reason: 'one that is chosen' });
      await page.goto(`${url}/dead-letters`);
      await page.getByRole('link', { name: 'one that is chosen' }).click();
      await page.getByRole('checkbox').check();
      await page.getByRole('button', { name: 'Replay selected' }).click();
      await page.getByRole('status').getByText('Enqueued again').waitFor();
      expect((await read(installation.database, id)).state).toBe('replaying');
    } finally {
      await plain.close();
    }
  });

  test('a user can only be deleted after the confirmation word is typed', async () => {
    const { shop, createUser } = scene;
    await createUser(shop, 'to be deleted');
    const page = await browser.newPage();
    await signIn(page, url);
    await page.goto(`${url}/users?q=to+be+deleted`);
    await page.getByRole('link', { name: 'Ada Lovelace' }).click();
    await page.getByRole('link', { name: 'Delete…' }).click();
    const button = page.getByRole('button', { name: 'Delete permanently' });
    expect(await button.isDisabled()).toBe(true);
    const word = (await page.locator('[data-word]').getAttribute('data-word'))!;
    await page.locator('[data-word]').fill(word);
    await button.click();
    await page.getByRole('heading', { name: 'Request' }).waitFor();
    // A busy queue may not report the job's position at the first attempt.
    await waitUntil(
      async () =>
        (await page.getByText(/in progress, or next|^\d envelopes?$/).isVisible()) || !(await page.reload()),
      { what: 'where the delete stands in its lane', deadline: 30_000 },
    );
    await page.close();
  });

  test('an invited user can set a password and sign in, and is signed out when deleted', async () => {
    const { database } = scene.installation;
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
    await page.getByText('at least 12 characters').waitFor();
    const choose = async (password: string) => {
      await page.getByLabel('New password').fill(password);
      await page.getByLabel('Repeat password').fill(password);
      await page.getByRole('button', { name: 'Set password' }).click();
    };
    await choose('short');
    await page.getByRole('alert').getByText('12 to 128 characters').waitFor();
    await choose('seven wooden ladders');
    await page.getByRole('status').getByText('Your password is set.').waitFor();
    await signIn(page, url, { user: 'ada@example.com', password: 'seven wooden ladders' });
    const names = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
    expect(names).toEqual(['Health', 'Queues']);

    await page.goto(`${url}/sign-out`);
    await page.getByText('signed in as ada@example.com, with the permissions that you have').waitFor();
    await database.prisma.account.delete({ where: { id } });
    await page.goto(url);
    expect(page.url()).toBe(`${url}/sign-in`);
  });

  test('the tables of Audit and History are whole at 1440 px', async () => {
    const page = await browser.newPage();
    await signIn(page, url);
    await page.setViewportSize({ width: 1440, height: 900 });
    for (const path of ['/audit', '/history', '/history?range=week']) {
      await page.goto(url + path);
      const table = page.locator('.scroll');
      const [width, shown] = await table.evaluate((one) => [one.scrollWidth, one.clientWidth]);
      expect([path, width]).toEqual([path, shown]);
    }
    await page.close();
  });

  test('Bull Board shows the lanes under /queues, asks no other host, and links to the console', async () => {
    const page = await browser.newPage();
    const requestedPaths = new Set<string>();
    page.on('response', (response) => requestedPaths.add(new URL(response.url()).origin));
    await signIn(page, url);
    const messages: string[] = [];
    page.on('console', (message) => messages.push(message.text()));
    await page.getByRole('link', { name: 'Queues' }).click();
    for (const lane of [0, 1, 2, 3]) await page.getByText(`Lane ${lane}`).waitFor();
    await page.getByRole('link', { name: 'dead-letters' }).click();
    await waitUntil(() => page.url().includes('/queues/queue/dead-letters'), { what: 'its page' });
    expect([...requestedPaths]).toEqual([url]);
    expect(messages).toEqual([]);
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 800 });
      const back = page.getByRole('link', { name: 'Back to the console' });
      // Playwright reports a link that another element covers.
      await back.click({ trial: true });
      expect((await back.boundingBox())!.y).toBeLessThan(160);
    }
    await page.getByRole('link', { name: 'Back to the console' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
    await page.goBack();
    await page.setViewportSize({ width: 1440, height: 800 });
    await page.locator('header button[aria-haspopup=menu]').click();
    await page.getByRole('menuitem', { name: 'Back to the console' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
    await page.goto(`${url}/sign-out`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${url}/sign-in`);
    await page.close();
  });
});
