import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { BrowserContext } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { findings } from '../board/browser-console.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isLong } from '../setup/length.ts';
import { createScene, type Scene } from './scene.ts';

/** Reads a template of the documentation, with the group ids inserted. */
const template = (file: string, { news, offers }: { news: string; offers: string }) =>
  readFileSync(path.join(packageRoot, 'docs', file), 'utf8')
    .replaceAll('NEWS_GROUP', news)
    .replaceAll('OFFERS_GROUP', offers);

/**
 * The pages work without a script. Without JavaScript only the long run opens them in a browser;
 * test/preferences/page asks by HTTP.
 */
const actions = [
  { backend: 'redis', javaScriptEnabled: true },
  ...(isLong ? [{ backend: 'postgres', javaScriptEnabled: false } as const] : []),
] as const;

describe.each(actions)(
  'a preference center in a browser, JavaScript: $javaScriptEnabled, queue in $backend',
  ({ backend, javaScriptEnabled }) => {
    let scene: Scene;
    let browser: BrowserContext;
    beforeAll(async () => {
      scene = await createScene(backend);
      browser = await openBrowser({ javaScriptEnabled });
    }, 300_000);
    afterAll(async () => {
      await browser?.close();
      await scene?.stop();
    });

    test('a user opens the link, changes two groups, saves, and sees them confirmed', async () => {
      const { groups, pool, workspace } = scene;
      await scene.addUser('ada', 'ada@example.com', { firstName: 'Ada <b>' });
      await pool.query(
        "insert into subscription_states values ($1, 'email', 'ada@example.com', $2, 'subscribed', now())",
        [workspace.id, groups.offers],
      );
      const { status, body } = await scene.api('POST', '/preference_center/v1', {
        name: 'choices',
        preference_center_title: 'Your choices',
        preference_center_page_html: template('preference-center.html', groups),
        confirmation_page_html: template('preference-center-saved.html', groups),
      });
      expect(status).toBe(201);

      const page = await browser.newPage();
      const complaints: string[] = [];
      page.on('console', (message) => complaints.push(message.text()));
      page.on('pageerror', (error) => complaints.push(error.message));
      await page.goto(await scene.urlOf(body.preference_center_api_id, 'ada'));
      expect(await page.title()).toBe('Your choices');
      await page.getByRole('heading', { name: 'What may we send you, Ada <b>?' }).waitFor();
      const news = page.getByLabel('News');
      const offers = page.getByLabel('Offers');
      expect([await news.isChecked(), await offers.isChecked()]).toEqual([false, true]);
      await news.check();
      await offers.uncheck();
      await page.getByRole('button', { name: 'Save' }).click();

      await page.getByRole('heading', { name: 'Your choices are saved' }).waitFor();
      await page.getByText('News subscribed').waitFor();
      await page.getByText('Offers not subscribed').waitFor();
      expect(complaints).toEqual([]);

      const queued = await scene.queued();
      expect(queued.map(({ kind }) => kind).sort()).toEqual(['email_change', 'group_state', 'group_state']);
      const wanted = { [groups.news]: 'subscribed', [groups.offers]: 'unsubscribed' };
      for (const object of queued) {
        if (object.kind === 'email_change') expect(object.state).toBe('subscribed');
        if (object.kind !== 'group_state') continue;
        expect(object.identifier).toEqual({ external_id: 'ada' });
        expect(object.subscription_state).toBe(wanted[object.subscription_group_id]);
      }

      await scene.fleet.startWorker();
      const read = (states: string) =>
        waitUntil(async () => (await statesOf('ada')) === states, {
          what: `the states to be read back through the API: ${states}`,
        });
      await read('subscribed Subscribed Unsubscribed');
      // The page shows the states that are stored now.
      await page.getByRole('link', { name: 'Back to your choices' }).click();
      await page.getByRole('button', { name: 'Save' }).waitFor();
      expect([await news.isChecked(), await offers.isChecked()]).toEqual([true, false]);

      // Unsubscribing from all overrides the ticked boxes; then subscribe again.
      const all = page.getByLabel('Unsubscribe from all');
      await all.check();
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('ada@example.com gets no more email from us.').waitFor();
      await read('unsubscribed Unsubscribed Unsubscribed');
      await page.getByRole('link', { name: 'Back to your choices' }).click();
      expect([await news.isChecked(), await offers.isChecked(), await all.isChecked()]).toEqual([
        ...[false, false, true],
      ]);
      await all.uncheck();
      await offers.check();
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('Offers subscribed').waitFor();
      await read('subscribed Unsubscribed Subscribed');
    });

    test.each(['light', 'dark'] as const)(
      'the example page, its confirmation and a notice have a %s scheme without a finding of axe',
      async (colorScheme) => {
        const externalId = `user-${colorScheme}`;
        await scene.addUser(externalId, `${externalId}@example.com`);
        const [choose, saved] = ['preference-center.html', 'preference-center-saved.html'].map((file) =>
          template(file, scene.groups),
        ) as [string, string];
        const { body } = await scene.api('POST', '/preference_center/v1', {
          ...{ name: colorScheme, preference_center_page_html: choose, confirmation_page_html: saved },
          options: { 'meta-viewport-content': 'width=device-width, initial-scale=1' },
        });
        const page = await browser.newPage();
        await page.setViewportSize({ width: 390, height: 844 });
        await page.emulateMedia({ colorScheme });
        // The policy of the page keeps axe from running in it, so axe runs in a copy.
        const copy = await browser.newPage();
        await copy.emulateMedia({ colorScheme });
        const look = async () => {
          const [background, width] = await page.evaluate<[string, number]>(
            '[getComputedStyle(document.body).backgroundColor, document.documentElement.scrollWidth]',
          );
          await copy.setContent(await page.content());
          const all = await findings(copy);
          // The author of a center chooses whether to write a whole document, which can have a language.
          return {
            background,
            isWide: width > 390,
            findings: all.filter((one) => !one.startsWith('html-has-lang')),
          };
        };
        const expected = {
          background: colorScheme === 'dark' ? 'rgb(16, 22, 28)' : 'rgb(238, 242, 245)',
          ...{ isWide: false, findings: [] },
        };
        const url = await scene.urlOf(body.preference_center_api_id, externalId);
        await page.goto(url);
        expect(await look()).toEqual(expected);
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByRole('heading', { name: 'Your choices are saved' }).waitFor();
        expect(await look()).toEqual(expected);
        await page.goto(url.slice(0, -4));
        expect(await look()).toEqual(expected);
        await Promise.all([page.close(), copy.close()]);
      },
    );

    /** Returns the state of email as a whole, then of the two groups, News first. */
    async function statesOf(externalId: string): Promise<string> {
      const { body } = await scene.api('POST', '/users/export/ids', { external_ids: [externalId] });
      const { email_subscribe, subscription_groups = [] } = body.users[0] ?? {};
      return [email_subscribe, ...subscription_groups.map(({ status }: { status: string }) => status)].join(
        ' ',
      );
    }

    test('scripts of template and attribute do not run, and forms cannot reach the API', async () => {
      await scene.addUser('eve', 'eve@example.com', { firstName: '<img src=x onerror="document.title=1">' });
      const center = await scene.addCenter(
        `<p id="name">{{\${first_name}}}</p><script>document.title = 'run'</script><img src="x" onerror="document.title='run'">
       <form action="/users/track" method="post"><button>Track</button></form>
       <iframe src="/docs"></iframe><img src="/metrics">`,
      );
      const page = await browser.newPage();
      const answered: string[] = [];
      page.on('response', (response) => answered.push(new URL(response.url()).pathname));
      const url = await scene.urlOf(center, 'eve');
      await page.goto(url);
      expect(await page.title()).toBe('Choices');
      expect(await page.locator('#name').textContent()).toBe('<img src=x onerror="document.title=1">');
      const refused = page.waitForEvent('console', (message) => message.text().includes('form-action'));
      // Use the keyboard: a click would wait for the navigation that must be blocked.
      await page.getByRole('button', { name: 'Track' }).focus();
      await page.keyboard.press('Enter', { delay: 10 });
      await refused;
      expect(page.url()).toBe(url);
      expect(answered).toEqual([new URL(url).pathname]);
    });
  },
);
