import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { expect, test } from 'vitest';
import { addDocsPages } from '../../src/edge/docs-pages.ts';
import { Responses } from '../../src/edge/responses.ts';

test('an error in the first build of the pages does not break /docs for later requests', async () => {
  let isBroken = true;
  const app = express();
  const describeApi = () => {
    if (isBroken) throw new Error('this once');
    return JSON.parse(readFileSync('generated/openapi.json', 'utf8'));
  };
  addDocsPages(app, describeApi, { responses: new Responses(33_554_432), addressOf: () => undefined });
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use((_error: unknown, _request: unknown, response: express.Response, _next: unknown) => {
    response.status(500).end();
  });
  const server = app.listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const statusOf = async () => (await fetch(`http://127.0.0.1:${port}/docs`)).status;
    expect(await statusOf()).toBe(500);
    isBroken = false;
    expect(await statusOf()).toBe(200);
  } finally {
    server.close();
  }
});
