import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { type HostileConsole, looksOf, openHostileConsole } from './browser-console.ts';
import { openingRoles } from './opening-roles.ts';
import { inWorkspace } from './people.ts';

/**
 * Only in the long form of the tests, because roles change the text of a page but not its layout. In the short form,
 * browser.processes.test.ts opens every page in a browser with all rights, and console-roles.test.ts and
 * console-places.test.ts open them over HTTP with each role.
 */

describe('the console in a browser, role by role', () => {
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

  test('each role gets the same pages as over HTTP, without overflow, scripts or masked names', async () => {
    const pages = await Promise.all([browser.newPage(), browser.newPage(), browser.newPage()]);
    for (const one of pages) await one.setViewportSize({ width: 390, height: 800 });
    let opened = 0;
    for (const [role, permissions] of Object.entries({ nothing: [], ...inWorkspace })) {
      const appGroups = [scene.shop, scene.hall].map((workspace) => ({ workspace, permissions, teams: [] }));
      const { visitor } = await scene.people.arrive([], { appGroups });
      const [name, value] = visitor.cookie().split('=') as [string, string];
      await browser.clearCookies();
      await browser.addCookies([{ name, value, url }]);
      const knows = permissions.some((one) => one === 'view_pii' || one === 'admin');
      const statuses = new Map<string, number>();
      for (const path of scene.routes)
        statuses.set(path, (await visitor.get(path, { accept: 'text/html' })).status);
      // Closed pages all look the same, so one of them is enough.
      const requested = [...statuses.keys()];
      const closed = requested.find((route) => statuses.get(route) === 403);
      const left = requested.filter((address) => statuses.get(address) !== 403 || address === closed);
      const open = async (one: Page) => {
        for (let path = left.shift(); path !== undefined; path = left.shift()) {
          const answer = await one.goto(url + path, { waitUntil: 'domcontentloaded' });
          expect([role, path, answer!.status()]).toEqual([role, path, statuses.get(path)]);
          expect([role, path, await looksOf(one)]).toEqual([role, path, []]);
          const names = (await one.content()).includes('ada@gmail.com');
          if (!knows) expect([role, path, names]).toEqual([role, path, false]);
          opened++;
        }
      };
      await Promise.all(pages.map(open));
    }
    expect(opened).toBeGreaterThan(200);
    for (const one of pages) await one.close();
  }, 180_000);

  test.each(openingRoles)(
    'a viewer who %s gets only the granted pages, and no link to a closed page',
    async (...given) => {
      const [, company, permissions, opens] = given;
      const appGroups = [scene.shop, scene.hall].map((workspace) => ({ workspace, permissions, teams: [] }));
      const { visitor } = await scene.people.arrive(company, { appGroups });
      const [name, value] = visitor.cookie().split('=') as [string, string];
      await browser.clearCookies();
      await browser.addCookies([{ name, value, url }]);
      const page = await browser.newPage();
      const opened = new Set<string>();
      const links = new Set<string>();
      let refused = 0;
      for (const path of scene.routes) {
        const { status } = await visitor.get(path, { accept: 'text/html' });
        if (status === 403 && refused++ > 0) continue;
        expect([path, (await page.goto(url + path))!.status()]).toEqual([path, status]);
        if (status === 200) opened.add(path.split(/[/?]/)[1]!);
        expect([path, await looksOf(page)]).toEqual([path, []]);
        if (company.length === 0) expect(await page.content()).not.toContain('ada@gmail.com');
        const evaluated = await page.evaluate<string[]>(
          "[...document.querySelectorAll('a[href^=\"/\"]')].map((one) => one.getAttribute('href'))",
        );
        for (const link of evaluated) links.add(link);
      }
      expect([...opened].sort()).toEqual(['', 'history', 'search', 'sessions', 'sign-out', ...opens].sort());
      for (const link of links) {
        let status = 503;
        // On a busy machine Postgres may time out. That does not mean that the page is closed.
        await waitUntil(
          async () => {
            ({ status } = await visitor.get(link, { accept: 'text/html' }));
            return status !== 503;
          },
          { what: `an answer of ${link}` },
        );
        expect([link, status < 400]).toEqual([link, true]);
      }
      await page.close();
    },
    120_000,
  );
});
