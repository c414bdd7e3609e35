import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import express from 'express';
import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readGuides } from '../../src/docs/guides.ts';
import { addDocsPages } from '../../src/edge/docs-pages.ts';
import { openApiDocument } from '../../src/edge/openapi.ts';
import { Responses } from '../../src/edge/responses.ts';
import { allOperations } from '../../src/operations/index.ts';
import { openBrowser } from '../setup/browser.ts';
import { isLong } from '../setup/length.ts';
import { waitUntil } from '../setup/wait-until.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const operations = allOperations('service_id');
const MAX_BYTES = 150_000;

/** Requests to operations, as sent by the browser. */
const sent: { method: string; url: string; authorization: string | undefined; body: unknown }[] = [];

let server: Server;
let origin: string;
beforeAll(async () => {
  const app = express();
  app.disable('etag');
  addDocsPages(app, () => openApiDocument(operations), {
    responses: new Responses(33_554_432),
    addressOf: () => undefined,
  });
  app.use(express.json(), (request, response) => {
    const { method, url, headers, body } = request;
    sent.push({ method, url, authorization: headers.authorization, body });
    response.status(201).json({ message: 'success' });
  });
  server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
});

/** Paths of each kind of page. */
const paths = [
  ...['', '/guides/api', '/guides/settings', '/guides/console', '/guides/reliability'],
  ...['/reference/users.track', '/reference/subscription.status.get', '/reference/scim.users.patch'],
  ...['/search?q=merge', '/search?q=nothing+of+that', '/search'],
  ...['/calculator', '/calculator?objects_per_second=none', '/calculator?objects_per_second=400000'],
];

test('pages and their files come from this server, under a policy that allows no other origin', async () => {
  for (const route of paths) {
    const page = await fetch(`${origin}/docs${route}`);
    expect([route, page.status]).toEqual([route, 200]);
    const policy = page.headers.get('content-security-policy')!;
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self';");
    expect(policy).not.toContain('unsafe');
    for (const [, file] of (await page.text()).matchAll(
      /<(?:script|link|img)[^>]*(?:src|href)="(\/[^"]+)"/g,
    )) {
      const { status, headers } = await fetch(origin + file);
      expect({ file, status }).toEqual({ file, status: 200 });
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      const isVersioned = file!.startsWith('/docs/assets/');
      expect(headers.get('cache-control')).toMatch(isVersioned ? /immutable/ : /max-age=3600/);
    }
  }
});

test('only files that the pages need are served', async () => {
  const version = /\/docs\/assets\/(\w+)\/docs\.css/.exec(await (await fetch(`${origin}/docs`)).text())![1];
  for (const path of [
    ...['/docs/package.json', '/docs/../package.json', '/docs/%2e%2e/package.json', '/docs/guides/testing'],
    ...[
      '/docs/guides/..%2f..%2fpackage.json',
      '/docs/pictures/..%2fopenapi.json',
      '/docs/pictures/none.webp',
    ],
    ...[`/docs/assets/${version}/..%2f..%2fdocs.css`, '/docs/assets/0/docs.css', '/docs/reference/none'],
  ]) {
    const { status } = await fetch(origin + path);
    // Paths that are not pages reach the handler after the documentation.
    expect([path, status]).toEqual([path, /\/docs\/(?:\.\.|%2e|package)/.test(path) ? 201 : 404]);
  }
});

test('a page that the client has cached is not sent again', async () => {
  for (const address of ['', '/guides/api', '/reference/users.track']) {
    const first = await fetch(`${origin}/docs${address}`);
    const etag = first.headers.get('etag')!;
    expect([first.headers.get('cache-control'), etag]).toEqual([
      'no-cache',
      expect.stringMatching(/^W\/"\w{16}"$/),
    ]);
    // Not `fetch`: with this header, Node's fetch would add a header that disables caching.
    const again = async (etag: string) => {
      const pending = get(`${origin}/docs${address}`, { headers: { 'if-none-match': etag } });
      const [answer] = (await once(pending, 'response')) as [IncomingMessage];
      return [answer.statusCode, await text(answer)];
    };
    expect(await again(etag)).toEqual([304, '']);
    expect(await again('"other"')).toEqual([200, await first.text()]);
  }
});

test('a burst of searches is refused, and other pages are still served', async () => {
  const search = async () => (await fetch(`${origin}/docs/search?q=the+of+and`)).status;
  const statuses = await Promise.all(Array.from({ length: 100 }, search));
  expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(60);
  expect([...new Set(statuses)].sort()).toEqual([200, 429]);
  expect((await fetch(`${origin}/docs/guides/api`)).status).toBe(200);
  await waitUntil(async () => (await search()) === 200, { what: 'a search to be answered again' });
});

test('/openapi.json is compressed for clients that accept gzip', async () => {
  const lengthOf = async (accepted: string) => {
    const { headers } = await fetch(`${origin}/openapi.json`, { headers: { 'accept-encoding': accepted } });
    return [headers.get('content-encoding'), Number(headers.get('content-length'))] as const;
  };
  const [plain, whole] = await lengthOf('identity');
  const [packed, compressed] = await lengthOf('gzip');
  expect([plain, packed]).toEqual([null, 'gzip']);
  expect(compressed).toBeLessThan(whole / 5);
});

test('/openapi.json contains the whole document', async () => {
  expect(await (await fetch(`${origin}/openapi.json`)).json()).toEqual(
    JSON.parse(JSON.stringify(openApiDocument(operations))),
  );
});

describe('in a browser without any other network', () => {
  let browser: BrowserContext;
  beforeAll(async () => {
    browser = await openBrowser();
  }, 200_000);
  afterAll(() => browser?.close());

  const findings = (page: Page): Promise<string[]> =>
    page.evaluate(
      `${axe};axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) =>
        nodes.map(({ html, failureSummary }) => id + ': ' + html.slice(0, 200) + failureSummary)))`,
    );

  test('no page violates axe rules or the policy, contacts other hosts, or exceeds the screen', async () => {
    const page = await browser.newPage();
    const troubles: string[] = [];
    const requested = new Set<string>();
    page.on('pageerror', ({ message }) => troubles.push(message));
    page.on('console', (line) => line.type() === 'error' && troubles.push(line.text()));
    page.on('request', (request) => requested.add(new URL(request.url()).origin));
    const screens = [
      [1280, 'light'],
      [390, 'dark'],
      [1280, 'dark'],
      [390, 'light'],
    ] as const;
    for (const [turn, [width, colorScheme]] of screens.entries()) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme });
      for (const [at, route] of paths.entries()) {
        // In the short form, each page is checked by axe on one of the screens in turn, and for its width on both
        // widths.
        const isJudged = isLong || (at + turn) % screens.length === 0;
        if (!isJudged && turn > 1) continue;
        await page.goto(`${origin}/docs${route}`);
        await page.evaluate('for (const one of document.querySelectorAll("main details")) one.open = true');
        const actual = isJudged ? await findings(page) : [];
        expect([route, width, colorScheme, actual]).toEqual([route, width, colorScheme, []]);
        const wide = Number(await page.evaluate('document.documentElement.scrollWidth'));
        expect([route, wide <= width]).toEqual([route, true]);
        expect([route, await page.locator('h1').count()]).toEqual([route, 1]);
      }
    }
    expect(troubles).toEqual([]);
    expect([...requested].filter((one) => one !== origin && one !== 'null')).toEqual([]);
    await page.close();
  }, 200_000);

  test('the first page takes less than 150 KB in total', async () => {
    const page = await browser.newPage();
    const sizes: Promise<number>[] = [];
    page.on('response', (response) => sizes.push(response.body().then(({ length }) => length)));
    await page.goto(`${origin}/docs`);
    const all = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    expect(all).toBeGreaterThan(10_000);
    expect(all).toBeLessThan(MAX_BYTES);
    await page.close();
  });

  test('a keyboard is sufficient to search, open a result, and choose a language', async () => {
    const page = await browser.newPage();
    await page.goto(`${origin}/docs`);
    await page.keyboard.press('Tab');
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the content');
    for (let press = 0; press < 2; press++) await page.keyboard.press('Tab');
    await page.keyboard.type('merge users');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Search' }).waitFor();
    await page.getByRole('link', { name: 'Merge users', exact: true }).last().focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Merge users', level: 1 }).waitFor();
    await page.getByRole('radio', { name: 'curl' }).focus();
    for (const [sign, other] of [
      ['await fetch(', 'curl -sS'],
      ['import urllib.request', 'await fetch('],
    ] as const) {
      await page.keyboard.press('ArrowRight');
      expect(await page.locator('.samples pre', { hasText: sign }).isVisible()).toBe(true);
      expect(await page.locator('.samples pre', { hasText: other }).isVisible()).toBe(false);
    }
    // The next page shows the chosen language.
    await page.goto(`${origin}/docs/reference/users.track`);
    expect(await page.getByRole('radio', { name: 'Python' }).isChecked()).toBe(true);
    await page.close();
  });

  test('search results change while the user types', async () => {
    const page = await browser.newPage();
    await page.goto(`${origin}/docs/search`);
    await page.getByRole('searchbox').pressSequentially('hard bounces');
    await page.getByRole('link', { name: 'List email addresses that hard bounced' }).last().waitFor();
    await page.waitForURL(/q=hard\+bounces$/);
    await page.close();
  });

  test('the result of the calculator changes while the user types, by keyboard alone', async () => {
    const page = await browser.newPage();
    await page.goto(`${origin}/docs/calculator`);
    await page.getByLabel('Objects per second').focus();
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type('1000000');
    await page.getByRole('cell', { name: '72, in 4 shards of 18' }).waitFor();
    await page.waitForURL(/objects_per_second=1000000&/);
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.press('Delete');
    await page.getByText('enter a whole number from 1 to 10,000,000').waitFor();
    await page.getByLabel('Queue').selectOption('Postgres');
    await page.waitForURL(/queue=postgres/);
    await page.close();
  });

  test('a request is sent with the values of the form, and its answer is shown', async () => {
    const page = await browser.newPage();
    await page.goto(`${origin}/docs/reference/cdi.sync`);
    await page.getByLabel('API key').fill('pk_secret');
    await page.getByLabel('integration_id').fill('a/b');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('201 Created').waitFor();
    expect(sent.at(-1)).toMatchObject({
      ...{ method: 'POST', url: '/cdi/integrations/a%2Fb/sync', authorization: 'Bearer pk_secret' },
    });
    await page.goto(`${origin}/docs/reference/users.merge`);
    expect(await page.getByLabel('API key').inputValue()).toBe('');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('201 Created').waitFor();
    expect(sent.at(-1)!.body).toEqual(operations.find(({ id }) => id === 'users.merge')!.example.body);
    expect(await page.locator('[data-answer]').textContent()).toBe('{\n  "message": "success"\n}');
    await page.close();
  });

  test('without scripts, all pages can be read, searched, and shown in each language', async () => {
    const plain = await openBrowser({ javaScriptEnabled: false });
    try {
      const page = await plain.newPage();
      // Some guides in the short form. test/docs/site.rules.test.ts checks that each one exists and is linked.
      for (const { title } of readGuides().filter((_, at) => isLong || at % 4 === 0)) {
        await page.goto(`${origin}/docs`);
        await page.getByRole('main').getByRole('link', { name: title, exact: true }).click();
        await page.getByRole('heading', { name: title, level: 1 }).waitFor();
      }
      await page.goto(`${origin}/docs`);
      await page.getByRole('searchbox').fill('export');
      await page.keyboard.press('Enter');
      await page.getByRole('main').getByRole('link', { name: 'Export users by their identifiers' }).click();
      await page.getByText('Python', { exact: true }).click();
      await page.locator('.samples pre', { hasText: 'urllib' }).waitFor();
      expect(await page.getByRole('heading', { name: 'Try it' }).isVisible()).toBe(false);
      await page.goto(`${origin}/docs/calculator`);
      await page.getByLabel('Objects per second').fill('100000');
      await page.keyboard.press('Enter');
      await page.getByRole('cell', { name: '5', exact: true }).waitFor();
    } finally {
      await plain.close();
    }
  }, 100_000);
});
