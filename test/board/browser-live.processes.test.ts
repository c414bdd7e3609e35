import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openBrowser } from '../setup/browser.ts';
import { signIn } from './browser-console.ts';
import { type Console, openConsole } from './console-scene.ts';
import { read } from './installation.ts';

/** Returns the width beside the last figure and the last chart in pixels. */
const LEFT_OVER = `['.figures', '.charts'].map((list) => {
  const box = document.querySelector(list);
  const [all, last] = [box, box.lastElementChild].map((one) => one.getBoundingClientRect());
  return Math.round(all.right - last.right);
})`;

describe('live updates, previews and keyboard use in a browser', () => {
  let scene: Console;
  let browser: BrowserContext;
  beforeAll(async () => {
    scene = await openConsole();
    await scene.recordPast('web-1');
    browser = await openBrowser();
  }, 300_000);
  afterAll(async () => {
    await browser?.close();
    await scene?.installation.stop();
  });

  test('live updates of the health page keep focus, scroll position and elements in place', async () => {
    const { letterIn, shop } = scene;
    const page = await browser.newPage();
    const requested: string[] = [];
    page.on('request', (request) => requested.push(request.url()));
    await signIn(page, scene.board.url);
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goto(`${scene.board.url}/?range=day`);
    await page.getByText('· live').waitFor();
    const charts = page.locator('[data-live=charts] figure');
    expect(await charts.count()).toBe(7);
    for (const width of [1440, 800, 390]) {
      await page.setViewportSize({ width, height: 800 });
      // The last figure and the last chart end at the right edge.
      expect([width, await page.evaluate(LEFT_OVER)]).toEqual([width, [0, 0]]);
    }
    await page.getByRole('link', { name: 'Last week' }).focus();
    await page.evaluate(`document.querySelector('[data-live=lanes] table').kept = true`);
    // A problem that appears above moves the page; what is looked at stays where it is on the screen.
    const topOfFocused = () => page.evaluate<number>('document.activeElement.getBoundingClientRect().top');
    const top = await topOfFocused();
    const deadLetters = page.locator('.figures div', { hasText: /^Dead letters/ }).locator('dd');
    const before = Number(await deadLetters.textContent());
    await letterIn(shop, { reason: 'while somebody looks' });
    await page
      .getByText(`${before + 1} dead letters need attention`)
      .or(deadLetters.getByText(String(before + 1)))
      .first()
      .waitFor();
    expect(
      await page.evaluate(
        `[document.querySelector('[data-live=lanes] table').kept, document.activeElement.textContent]`,
      ),
    ).toEqual([true, 'Last week']);
    expect(Math.abs((await topOfFocused()) - top)).toBeLessThan(2);
    await charts.first().scrollIntoViewIfNeeded();
    await charts.first().locator('svg').hover();
    expect(await charts.first().locator('[data-point]').textContent()).toMatch(
      /: .*objects\/s · .*objects\/s$/,
    );
    expect(requested.filter((url) => url.endsWith('/events?range=day'))).toHaveLength(1);
    await page.close();
  });

  test('a preference center preview runs no script, sends no request and follows no link', async () => {
    const page = await browser.newPage();
    const requestedPaths: string[] = [];
    page.on('request', (request) => requestedPaths.push(request.url()));
    await signIn(page, scene.board.url);
    const path = `${scene.board.url}/preference-centers/${scene.center}`;
    for (const [screen, width] of [
      ['phone', 390],
      ['desktop', 1280],
    ] as const) {
      await page.goto(`${path}?user=user-1&screen=${screen}`);
      const frame = page.frameLocator('iframe');
      await frame.getByText('of ada@gmail.com').waitFor();
      expect((await page.locator('iframe').boundingBox())!.width).toBe(width);
      expect(await frame.getByRole('checkbox').isChecked()).toBe(false);
      await frame.getByRole('checkbox').check();
      await frame.getByRole('button', { name: 'Save' }).click();
      await frame.locator('#away').click();
      await frame.locator('#here').click();
      await frame.getByRole('checkbox', { checked: true }).waitFor();
      expect(page.frames().map((one) => one.url())).toEqual([
        `${path}?user=user-1&screen=${screen}`,
        `${path}/preview?template=page&user=user-1`,
      ]);
    }
    expect(await scene.query('select from subscription_states')).toEqual([]);
    // The preview is also harmless outside the frame.
    await page.goto(`${path}/preview?user=user-1`);
    expect(await page.title()).toBe('What we send');
    expect(await page.evaluate('window.origin')).toBe('null');
    expect(requestedPaths.filter((url) => !url.startsWith(`${scene.board.url}/`))).toEqual([]);
    await page.close();
  });

  test('a user can be found and opened with the keyboard only', async () => {
    const page = await browser.newPage();
    await signIn(page, scene.board.url);
    await page.goto(`${scene.board.url}/`);
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the content');
    await tabTo(page, 'Users');
    await page.keyboard.press('Enter');
    await page.getByRole('searchbox').waitFor();
    await page.keyboard.type('user-1');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: /users? found/ }).waitFor();
    await tabTo(page, 'Ada Lovelace');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Ada Lovelace', exact: true }).waitFor();
    await page.close();
  });

  test('a dead letter can be selected, replayed and discarded with the keyboard only', async () => {
    const { letterIn, school, installation } = scene;
    const page = await browser.newPage();
    await signIn(page, scene.board.url);
    const choose = async (reason: string) => {
      const id = await letterIn(school, { reason });
      await page.goto(`${scene.board.url}/dead-letters`);
      await tabTo(page, reason);
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: reason }).waitFor();
      await tabTo(page, `Select ${id}`);
      await page.keyboard.press('Space');
      return async () => (await read(installation.database, id)).state;
    };
    const replayed = await choose('one to replay');
    await tabTo(page, 'Replay selected');
    await page.keyboard.press('Enter');
    await page.getByRole('status').getByText('Enqueued again').waitFor();
    expect(await replayed()).toBe('replaying');

    const first = await choose('one to discard');
    await tabTo(page, 'Reason to discard');
    await page.keyboard.type('never to be applied');
    await tabTo(page, 'Discard selected');
    await page.keyboard.press('Enter');
    await page.getByRole('status').getByText('Discarded.').waitFor();
    expect(await first()).toBe('discarded');

    // Enter in a field activates the first button of the form, which must be the discard button.
    const second = await choose('another to discard');
    await tabTo(page, 'Reason to discard');
    await page.keyboard.type('neither');
    await page.keyboard.press('Enter');
    await page.getByRole('status').waitFor();
    expect(await second()).toBe('discarded');
    await page.close();
  });
});

/** Presses Tab until the element has the focus whose name is the text, or whose label begins with it. */
async function tabTo(page: Page, name: string): Promise<void> {
  const focused = `(({ ariaLabel, labels, textContent }) =>
    ariaLabel ?? labels?.[0]?.textContent ?? textContent)(document.activeElement).trim()`;
  const passed: string[] = [];
  while (passed.length < 60) {
    await page.keyboard.press('Tab');
    const evaluated = await page.evaluate<string>(focused);
    if (evaluated === name || evaluated.startsWith(`${name} `)) return;
    passed.push(evaluated);
  }
  throw new Error(`Tab does not lead to ${name}, but to ${passed.join(', ')}`);
}
