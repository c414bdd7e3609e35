import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openApiDocument } from '../../src/edge/openapi.ts';
import { addDocsPages } from '../../src/edge/pages.ts';
import { allOperations } from '../../src/operations/index.ts';
import { openBrowser } from '../setup/browser.ts';

const operations = allOperations('service_id');
let server: Server;
let origin: string;
beforeAll(async () => {
  const app = express();
  addDocsPages(app, () => openApiDocument(operations));
  server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
});

test('the page and its files come from here, under a policy that lets nothing else in', async () => {
  const page = await fetch(`${origin}/docs`);
  expect(page.status).toBe(200);
  const policy = page.headers.get('content-security-policy')!;
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain("script-src 'self';");
  const html = await page.text();
  expect(html).not.toMatch(/https?:\/\//);
  expect(html).not.toMatch(/<script>|<style>/);
  for (const [, file] of html.matchAll(/(?:src|href)="([^"]+)"/g)) {
    const { status, headers } = await fetch(origin + file);
    expect({ file, status }).toEqual({ file, status: 200 });
    expect(headers.get('x-content-type-options') ?? file).toMatch(/nosniff|openapi\.json/);
  }
});

test('only the files that the page needs are served', async () => {
  for (const path of [
    '/docs/package.json',
    '/docs/swagger-ui-bundle.js.map',
    '/docs/../package.json',
    '/docs/%2e%2e/package.json',
  ]) {
    expect((await fetch(origin + path)).status).toBe(404);
  }
});

test('/openapi.json is the document itself', async () => {
  expect(await (await fetch(`${origin}/openapi.json`)).json()).toEqual(
    JSON.parse(JSON.stringify(openApiDocument(operations))),
  );
});

test('a browser without any other network shows every operation and breaks no rule of the policy', async () => {
  const browser = await openBrowser();
  try {
    const page = await browser.newPage();
    const complaints: string[] = [];
    const asked = new Set<string>();
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.protocol !== 'data:') asked.add(url.origin);
    });
    await page.goto(`${origin}/docs`);
    for (const { id, method, path, summary } of operations) {
      const row = page
        .locator(`.opblock-${method.toLowerCase()} .opblock-summary`)
        .filter({ has: page.locator(`[data-path="${path.replace(/:(\w+)/g, '{$1}')}"]`) });
      const shown = row.filter({ hasText: summary });
      await shown.waitFor();
      // One of each shape is opened: with a body, and with a query.
      if (['users.track', 'subscription.status.get'].includes(id)) await shown.click();
    }
    await page.locator('.opblock-body .response').first().waitFor();
    expect([...asked]).toEqual([origin]);
    expect(complaints).toEqual([]);
  } finally {
    await browser.close();
  }
}, 300_000);
