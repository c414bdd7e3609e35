import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { BrowserContext, Page } from 'playwright-core';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { pack } from '../../src/queue/pack.ts';
import { createApiKey } from '../../src/store/api-keys.ts';
import { indexUsers } from '../../src/store/user-search.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess } from '../setup/processes.ts';
import { signIn, troublesOf } from './browser-console.ts';
import { type Console, openConsole } from './console-scene.ts';
import { failedEvent, tester } from './installation.ts';

/** Each task is done on both screens. The other color scheme of the width is checked at the end of the task. */
const screens = [
  { width: 1440, colorScheme: 'light', other: 'dark' },
  { width: 390, colorScheme: 'dark', other: 'light' },
] as const;

const COLORS = ['color-contrast', 'link-in-text-block'];

describe.each(screens)(
  'by keyboard alone at $width px in $colorScheme colors, without an axe finding,',
  ({ width, colorScheme, other }) => {
    let scene: Console;
    let browser: BrowserContext;
    let page: Page;
    let receiver: Server;
    const received: { path: string; body: string }[] = [];
    beforeAll(async () => {
      // Creating a stream needs a key for its secret, and a network in which its destination may be.
      scene = await openConsole({
        ...{ INTEGRATION_KEY: randomBytes(32).toString('base64'), ALLOWED_NETWORKS: '127.0.0.1/32' },
      });
      await indexUsers(scene.installation.database.pool);
      receiver = createServer((request, response) => {
        void text(request).then((body) => {
          received.push({ path: request.url!, body });
          response.end();
        });
      }).listen(0, '127.0.0.1');
      browser = await openBrowser();
      page = await browser.newPage();
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await signIn(page, scene.board.url);
    }, 300_000);
    afterAll(async () => {
      await browser?.close();
      receiver?.close();
      await scene?.installation.stop();
    });

    // A task that failed must not leave its page or a dialog to the next one.
    beforeEach(async () => void (await page.goto(scene.board.url)));

    /** Checks the present page on this screen, and its colors in the other scheme. */
    async function check(): Promise<void> {
      const actual = await troublesOf(page, [
        { width, colorScheme: other, rules: COLORS },
        { width, colorScheme },
      ]);
      expect(actual).toEqual([]);
      await page.setViewportSize({ width, height: 800 });
    }

    /** Opens the search, types a text, and opens the result with this name. */
    async function searchFor(text: string, result: string): Promise<void> {
      await page.keyboard.press('Control+k');
      await page.getByRole('dialog').waitFor();
      await page.keyboard.type(text);
      await page.locator(`.palette .found[data-query="${text}"]`).waitFor();
      const focused = 'document.activeElement.firstElementChild?.textContent';
      for (let step = 0; step < 12; step++) {
        await page.keyboard.press('ArrowDown');
        if ((await page.evaluate(focused)) === result) break;
      }
      expect(await page.evaluate(focused)).toBe(result);
      await Promise.all([page.waitForEvent('load'), page.keyboard.press('Enter')]);
    }

    /** Presses Tab until the element with this name has the focus. */
    async function tabTo(name: string): Promise<void> {
      const focused = `(({ ariaLabel, labels, textContent }) =>
      (ariaLabel ?? labels?.[0]?.firstChild?.textContent ?? textContent).trim())(document.activeElement)`;
      const passed: string[] = [];
      while (passed.length < 120) {
        await page.keyboard.press('Tab');
        const evaluated = await page.evaluate<string>(focused);
        if (evaluated === name) return;
        passed.push(evaluated);
      }
      throw new Error(`Tab does not lead to ${name}, but to ${passed.join(', ')}`);
    }

    async function press(name: string): Promise<void> {
      await tabTo(name);
      await page.keyboard.press('Enter');
    }

    /** Sends an event over the API. The processes that apply and deliver it end with this test. */
    async function sendEvent(workspaceId: string, name: string): Promise<void> {
      const { installation } = scene;
      const [port, workerPort, syncPort] = [await leasePort(), await leasePort(), await leasePort()].map(
        String,
      );
      const ports = { PORT: port!, WORKER_PORT: workerPort!, SYNC_PORT: syncPort! };
      const env = { ...installation.env, ...ports };
      const files = ['dist/src/web.js', 'dist/workers/worker.js', 'dist/workers/sync.js'];
      const processes = files.map((file) => startProcess(file, env));
      onTestFinished(async () => {
        for (const one of processes) one.kill();
        await Promise.all(processes.map(({ exit }) => exit));
      });
      const { secret } = await createApiKey(installation.database, tester, {
        ...{ workspaceId, name, permissions: ['users.track'], ipAllowlist: [] },
      });
      const post = () =>
        fetch(`http://127.0.0.1:${port}/users/track`, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({
            events: [{ external_id: 'user-1', name, time: new Date().toISOString() }],
          }),
        });
      await waitUntil(async () => (await post()).status === 201, { what: 'an accepted event' });
    }

    /** Opens the page of Ada from the search by a part of the name. */
    async function openAda(): Promise<void> {
      await searchFor('love', 'Users matching “love”');
      await page.getByText(/^1 user/).waitFor();
      await check();
      await Promise.all([page.waitForEvent('load'), press('Ada Lovelace')]);
      await page.getByRole('heading', { name: 'Ada Lovelace', level: 1 }).waitFor();
    }

    test('a supporter finds a person by a part of the name', async () => {
      await openAda();
      await check();
    });

    test('a supporter sees why the last request about a person had no effect', async () => {
      const requestId = uuidv7();
      const reason = "'time' is not a time";
      await scene.letterIn(scene.shop, {
        ...{ reason, requestId, identifiers: [{ external_id: 'user-1' }] },
      });
      await openAda();
      await page.getByRole('cell', { name: reason, exact: true }).waitFor();
      await Promise.all([page.waitForEvent('load'), press('events')]);
      await page.getByText(reason).first().waitFor();
      await check();
      await Promise.all([page.waitForEvent('load'), press(requestId)]);
      await page.getByRole('heading', { name: requestId }).waitFor();
      await page.getByRole('cell', { name: reason, exact: true }).waitFor();
      await check();
    });

    test('a supporter unsubscribes a person from emails', async () => {
      await openAda();
      await tabTo('Subscription');
      await tabTo('State');
      await page.keyboard.type('unsubscribed');
      await Promise.all([page.waitForEvent('load'), press('Set…')]);
      await page.getByRole('heading', { name: 'Set email to unsubscribed?' }).waitFor();
      await check();
      await Promise.all([page.waitForEvent('load'), press('Confirm')]);
      await page.getByRole('status').getByText('The change was accepted').waitFor();
      const envelopes = await scene.installation.envelopes();
      expect(JSON.stringify(envelopes)).toContain('"email_subscribe":"unsubscribed"');
      await check();
    });

    test('an engineer corrects a field of a dead letter and replays it', async () => {
      const reason = `'properties.size' must be a number, not ${width}`;
      const { object } = failedEvent();
      const id = await scene.letterIn(scene.shop, {
        ...{ reason, object: { ...object, properties: { size: 'large' } } },
      });
      await searchFor('letters', 'Dead letters');
      await check();
      await Promise.all([page.waitForEvent('load'), press(reason)]);
      await check();
      await Promise.all([page.waitForEvent('load'), press('Open')]);
      await tabTo('properties.size');
      await page.keyboard.press('Control+a');
      await page.keyboard.type('8');
      await check();
      await Promise.all([page.waitForEvent('load'), press('Save and replay')]);
      await page.getByRole('status').getByText('Replaced and enqueued again.').waitFor();
      const [letter] = await scene.query('select state, object from dead_letters where id = $1', id);
      expect(letter).toMatchObject({ state: 'replaying', object: { properties: { size: '8' } } });
      await check();
    });

    test('an operator raises a limit', async () => {
      await searchFor('shop', 'shop');
      await press('Change users.track');
      await page.waitForURL('**/limits/users.track?workspace=*#set');
      await tabTo('Requests');
      await page.keyboard.press('Control+a');
      await page.keyboard.type('80000');
      await check();
      await press('Set limit');
      await page.getByRole('status').getByText('Limit set.').waitFor();
      await page.locator('.facts').getByText('80,000').waitFor();
      await check();
    });

    test('an administrator invites a colleague', async () => {
      if (width < 760) await press('Menu');
      await press('Accounts');
      await page.waitForURL('**/accounts');
      if (await page.locator('#create:not([open])').count()) await press('Invite by email');
      await tabTo('Email address');
      await page.keyboard.type(`grace-${width}@example.com`);
      await tabTo('Given name');
      await page.keyboard.type('Grace');
      await tabTo('Family name');
      await page.keyboard.type('Hopper');
      await check();
      await page.keyboard.press('Enter');
      await page.getByText('Send the link only to').waitFor();
      await check();
    });

    test('an administrator creates a stream and sees it deliver', async () => {
      await searchFor('streams', 'Streams');
      if (await page.locator('#create:not([open])').count()) await press('Create stream');
      await tabTo('Name');
      await page.keyboard.type(`warehouse-${width}`);
      await tabTo('Webhook URL');
      await page.keyboard.type(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/in`);
      await check();
      await press('Create stream');
      await page.getByText('Copy the secret now').waitFor();
      await check();
      await Promise.all([page.waitForEvent('load'), press('Go to the stream')]);
      await press(`Test warehouse-${width}`);
      await page.getByRole('status').getByText('The destination accepted an empty batch.').waitFor();
      expect(received.at(-1)?.path).toBe('/in');
      await check();
      const sentAt = received.length;
      const [stream] = await scene.query(
        'select workspace_id::text as id from stream_destinations where name = $1',
        `warehouse-${width}`,
      );
      await sendEvent(stream.id, `parcel-${width}`);
      const isReceived = () => received.slice(sentAt).some(({ body }) => body.includes(`parcel-${width}`));
      await waitUntil(isReceived, { what: 'the event at the receiver' });
      const cell = page.getByText(/^[1-9]\d*$/);
      const delivered = page
        .locator('dt', { hasText: /^Delivered$/ })
        .locator('+ dd')
        .filter({ has: cell });
      await expect.poll(async () => (await page.reload()) && delivered.count(), { timeout: 30_000 }).toBe(1);
      await check();
    });

    test('an operator sees why the queue stands', async () => {
      const request = {
        ...{ request_id: uuidv7(), workspace_id: scene.shop, accepted_at: new Date().toISOString() },
        key_id: scene.key,
      };
      const event = {
        kind: 'events',
        id: uuidv7(),
        index: 0,
        identifier: { external_id: 'ada' },
        name: 'seen',
      };
      const objects = [{ ...event, time: request.accepted_at } as AcceptedObject];
      await scene.installation.producer.add(pack([{ request, objects, bytes: 100 }], 1, 100));
      await searchFor('health', 'Health');
      await page
        .locator('.problems')
        .getByText(/No worker is running\. \d+ jobs? waits?/)
        .waitFor();
      await check();
    });

    test('an analyst creates a segment and downloads its users', async () => {
      await searchFor('segments', 'Segments');
      await tabTo('Workspace');
      await page.keyboard.type('shop');
      await Promise.all([page.waitForEvent('load'), press('Show')]);
      await tabTo('Name');
      await page.keyboard.type('first_name');
      await tabTo('Value');
      await page.keyboard.type('Ada');
      await Promise.all([page.waitForEvent('load'), press('Add a row')]);
      await page.getByRole('group', { name: 'Row 2' }).waitFor();
      await check();
      await Promise.all([page.waitForEvent('load'), press('Remove row 2')]);
      await Promise.all([page.waitForEvent('load'), press('Count matching users')]);
      await page.getByRole('link', { name: 'Ada Lovelace' }).waitFor();
      await page.getByText(/1 user of all \d/).waitFor();
      await tabTo('Name (unique in this workspace)');
      await page.keyboard.type(`Adas ${width}`);
      await check();
      await press('Create segment');
      await page.getByRole('heading', { name: `Adas ${width}` }).waitFor();
      await check();
      const download = page.waitForEvent('download');
      await press('Download users as CSV');
      expect((await download).suggestedFilename()).toBe('segment.csv');
    });

    test('a marketer corrects an error in a template and creates a preference center', async () => {
      await searchFor('preference', 'Preference centers');
      await tabTo('Workspace');
      await page.keyboard.type('shop');
      await Promise.all([page.waitForEvent('load'), press('Show')]);
      if (await page.locator('#create:not([open])').count()) await press('Create preference center');
      await tabTo('Name');
      await page.keyboard.type(`choices-${width}`);
      await tabTo('Page');
      await page.keyboard.type('<h1>Your {% choices</h1>');
      await tabTo('Confirmation');
      await page.keyboard.type('<p>Saved.</p>');
      await Promise.all([page.waitForEvent('load'), press('Create preference center')]);
      await page.getByRole('alert').getByText('Page is not valid: line 1').waitFor();
      await check();
      await tabTo('Page');
      await page.keyboard.press('Control+a');
      await page.keyboard.type('<h1>Your choices</h1>');
      await check();
      await Promise.all([page.waitForEvent('load'), press('Create preference center')]);
      await page.getByRole('status').getByText('Created.').waitFor();
      await page.frameLocator('iframe').first().getByText('Your choices').waitFor();
      await check();
    });

    test('an engineer finds the key that sends bad objects', async () => {
      await scene.refusedIn(scene.shop, { keyId: scene.key });
      await searchFor('refused', 'Refused objects');
      await page.getByRole('cell', { name: 'till' }).first().waitFor();
      await check();
      await searchFor('till', 'till');
      await page.getByRole('heading', { name: 'till' }).waitFor();
      await check();
    });
  },
);
