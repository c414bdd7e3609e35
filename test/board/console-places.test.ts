import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitUntil } from '../setup/wait-until.ts';
import { type HostileConsole, openHostileConsole, script } from './browser-console.ts';
import { page } from './console-scene.ts';
import { openingRoles } from './opening-roles.ts';
import { inWorkspace, type Visitor } from './people.ts';

/**
 * Opens every path of the console over HTTP with each role. In a browser, browser.processes.test.ts opens the pages
 * with all rights, and browser-roles.long.processes.test.ts with each role.
 */
let scene: HostileConsole;
beforeAll(async () => {
  scene = await openHostileConsole();
});
afterAll(() => scene?.installation.stop());

/** Creates a user with these permissions in both workspaces with hostile data. */
async function arrive(permissions: string[], company: string[] = []): Promise<Visitor> {
  const appGroups = [scene.shop, scene.hall].map((workspace) => ({ workspace, permissions, teams: [] }));
  return (await scene.people.arrive(company, { appGroups })).visitor;
}

/** Each role opens every third page, starting at a different one. */
const PART = 3;

test('pages show no personal data without the right to it, and escape markup in data', async () => {
  let opened = 0;
  for (const [turn, permissions] of [[], ...Object.values(inWorkspace)].entries()) {
    const visitor = await arrive(permissions);
    const knows = permissions.some((one) => one === 'view_pii' || one === 'admin');
    for (const path of scene.routes.filter((_, at) => (at + turn) % PART === 0)) {
      const { status, text } = await page(visitor, path);
      expect([permissions, path, status]).toEqual([
        permissions,
        path,
        expect.toBeOneOf([200, 400, 403, 404]),
      ]);
      expect([permissions, path, text.includes(script)]).toEqual([permissions, path, false]);
      const names = text.includes('ada@gmail.com');
      if (!knows) expect([permissions, path, names]).toEqual([permissions, path, false]);
      if (status === 200) opened++;
    }
  }
  expect(opened).toBeGreaterThan(100);
});

test.each(openingRoles)(
  'a viewer who %s gets only the granted pages, and no link to a closed page',
  async (...given) => {
    const [, company, permissions, opens] = given;
    const visitor = await arrive(permissions, company);
    const opened = new Set<string>();
    const links = new Set<string>();
    for (const route of scene.routes) {
      const { status, text } = await page(visitor, route);
      if (status === 200) opened.add(route.split(/[/?]/)[1]!);
      if (company.length === 0) expect([route, text.includes('ada@gmail.com')]).toEqual([route, false]);
      for (const [, link] of text.matchAll(/<a [^>]*?href="(\/[^"]*)"/g))
        links.add(link!.replaceAll('&amp;', '&'));
    }
    expect([...opened].sort()).toEqual(['', 'history', 'search', 'sessions', 'sign-out', ...opens].sort());
    expect(links.size).toBeGreaterThan(5);
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
  },
);
