import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openBrowser } from '../setup/browser.ts';
import { type Console, openConsole } from './console-scene.ts';
import { account } from './installation.ts';

describe('what moves, and what must not, in a browser', () => {
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

  async function signIn(page: Page) {
    await page.context().clearCookies();
    await page.goto(`${scene.board.url}/sign-in`);
    await page.getByLabel('Email address or user').fill(account.user);
    await page.getByLabel('Password').fill(account.password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
  }

  test('health stays live in its place: what is looked at, focused or scrolled stays', async () => {
    const { letterIn, shop } = scene;
    const page = await browser.newPage();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await signIn(page);
    await page.setViewportSize({ width: 390, height: 800 });
    await page.goto(`${scene.board.url}/?range=day`);
    await page.getByText('· live').waitFor();
    const charts = page.locator('[data-live=charts] figure');
    expect(await charts.count()).toBe(7);
    await page.getByRole('link', { name: 'Last week' }).focus();
    await page.evaluate(`document.querySelector('[data-live=lanes] table').kept = true;
      document.querySelector('[data-live=lanes] .scroll').scrollLeft = 9`);
    const top = await page.evaluate('scrollY');
    const letters = page.locator('.figures div', { hasText: /^Dead letters/ }).locator('dd');
    const before = Number(await letters.textContent());
    await letterIn(shop, { reason: 'while somebody looks' });
    await page
      .getByText(`${before + 1} dead letters wait for a person`)
      .or(letters.getByText(String(before + 1)))
      .first()
      .waitFor();
    expect(
      await page.evaluate(`[document.querySelector('[data-live=lanes] table').kept,
        document.querySelector('[data-live=lanes] .scroll').scrollLeft, document.activeElement.textContent, scrollY]`),
    ).toEqual([true, 9, 'Last week', top]);
    await charts.first().scrollIntoViewIfNeeded();
    await charts.first().locator('svg').hover();
    expect(await charts.first().locator('[data-point]').textContent()).toMatch(
      /: .*objects\/s · .*objects\/s$/,
    );
    expect(asked.filter((url) => url.endsWith('/events?range=day'))).toHaveLength(1);
    await page.close();
  });

  test('the preview of a preference center runs nothing, asks nobody, and nothing in it can be pressed', async () => {
    const page = await browser.newPage();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await signIn(page);
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
    // Opened by itself it is as harmless.
    await page.goto(`${path}/preview?user=user-1`);
    expect(await page.title()).toBe('What we send');
    expect(await page.evaluate('window.origin')).toBe('null');
    expect(asked.filter((url) => !url.startsWith(`${scene.board.url}/`))).toEqual([]);
    await page.close();
  });
});
