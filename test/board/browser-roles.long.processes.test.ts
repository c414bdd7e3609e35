import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { type HostileConsole, looksOf, openHostileConsole } from './browser-console.ts';
import { openingRoles } from './opening-roles.ts';
import { inWorkspace } from './people.ts';

/**
 * In the long form alone: whose page it is changes words, no look. The short form has every page in a browser as who may
 * see all (browser.processes.test.ts), and as each role by HTTP (console-roles.test.ts, console-places.test.ts).
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

  test('each page that a role has opens for it as it answers, fits a phone, runs nothing of the data and tells nobody’s name', async () => {
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
      for (const place of scene.places)
        statuses.set(place, (await visitor.get(place, { accept: 'text/html' })).status);
      // Those that are closed look alike: one stands for them.
      const asked = [...statuses.keys()];
      const closed = asked.find((place) => statuses.get(place) === 403);
      const left = asked.filter((place) => statuses.get(place) !== 403 || place === closed);
      const open = async (one: Page) => {
        for (let place = left.shift(); place !== undefined; place = left.shift()) {
          const answer = await one.goto(url + place, { waitUntil: 'domcontentloaded' });
          expect([role, place, answer!.status()]).toEqual([role, place, statuses.get(place)]);
          expect([role, place, await looksOf(one)]).toEqual([role, place, []]);
          const names = (await one.content()).includes('ada@gmail.com');
          if (!knows) expect([role, place, names]).toEqual([role, place, false]);
          opened++;
        }
      };
      await Promise.all(pages.map(open));
    }
    expect(opened).toBeGreaterThan(200);
    for (const one of pages) await one.close();
  }, 180_000);

  test.each(openingRoles)(
    'who %s sees such pages too, and no link that is closed',
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
      for (const place of scene.places) {
        const { status } = await visitor.get(place, { accept: 'text/html' });
        if (status === 403 && refused++ > 0) continue;
        expect([place, (await page.goto(url + place))!.status()]).toEqual([place, status]);
        if (status === 200) opened.add(place.split(/[/?]/)[1]!);
        expect([place, await looksOf(page)]).toEqual([place, []]);
        if (company.length === 0) expect(await page.content()).not.toContain('ada@gmail.com');
        const found = await page.evaluate<string[]>(
          "[...document.querySelectorAll('a[href^=\"/\"]')].map((one) => one.getAttribute('href'))",
        );
        for (const link of found) links.add(link);
      }
      expect([...opened].sort()).toEqual(['', 'history', 'sessions', 'sign-out', ...opens].sort());
      for (const link of links) {
        let status = 503;
        // A busy machine makes Postgres wait, which closes no page.
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
