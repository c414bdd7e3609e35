import type { BrowserContext, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess } from '../setup/processes.ts';
import { signIn, troublesOf } from './browser-console.ts';

/**
 * Only in the long form of the tests. The short form covers the sentence in checks/registry.rules.test.ts, the
 * stream in live.test.ts, and a page that updates itself in browser-live.processes.test.ts.
 */
const password = 'correct horse';

let fleet: Fleet;
let browser: BrowserContext;
let page: Page;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1 });
  const port = await leasePort();
  const env = { ...fleet.env, BOARD_PORT: String(port), BOARD_PASSWORD: password };
  startProcess('dist/src/board.js', env);
  const url = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${url}/healthz`)).ok, { what: 'the console' });
  browser = await openBrowser();
  page = await browser.newPage();
  await signIn(page, url, { user: 'admin', password });
  return fleet.stop;
});

afterAll(() => browser?.close());

/** Finds a problem at the top of the health page. The page is not reloaded, so it has to update itself. */
const sentence = (begin: RegExp): Locator =>
  page.locator('.problems strong, .verdict strong').filter({ hasText: begin });

const untilItSays = (begin: RegExp) => sentence(begin).waitFor({ timeout: 60_000 });

test('a frozen worker is named on the health page, with its silence and the waiting jobs', async () => {
  const [worker] = fleet.workers;
  await untilItSays(/^All systems normal/);
  process.kill(worker!.pid, 'SIGSTOP');
  const client = createClient(fleet.workspace.key);
  for (let n = 0; n < 12; n++) {
    const { status } = await client.post(fleet.edges[0]!.port, '/users/track', {
      attributes: [{ external_id: `user-${n}`, first_name: 'Ada' }],
    });
    expect(status).toBe(201);
  }
  client.close();
  await untilItSays(/^No worker is running/);
  const sentenceText = (await sentence(/^No worker is running/).textContent())!;
  const [, jobs, oldest] = /^No worker is running\. (\d+) jobs? waits?, the oldest for (\d+) s\./
    .exec(sentenceText)!
    .map(Number);
  expect(jobs! > 0 && jobs! <= 12).toBe(true);
  expect(oldest).toBeGreaterThanOrEqual(20);
  const silent = (await sentence(/has sent no heartbeat/).textContent())!;
  expect(silent).toContain(`(pid ${worker!.pid}) has sent no heartbeat for 2`);
  expect(await troublesOf(page)).toEqual([]);
  process.kill(worker!.pid, 'SIGCONT');
  await untilItSays(/^All systems normal/);
}, 120_000);
