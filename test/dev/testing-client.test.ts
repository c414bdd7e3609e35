import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectPenstock, type PenstockClient } from '../../src/testing.ts';

/** Control requests that the client has sent: method and path, type, body. */
const sent: (string | undefined)[][] = [];
const server = createServer(async (request, response) => {
  sent.push([`${request.method} ${request.url}`, request.headers['content-type'], await text(request)]);
  response.end('{"message":"success"}');
});

let penstock: PenstockClient;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  penstock = connectPenstock({
    ...{ url: `http://127.0.0.1:${port}`, apiKey: 'key', scimToken: 'token', scimOrigin: 'origin' },
    ...{ consoleUrl: 'http://127.0.0.1', consoleUser: 'admin', consolePassword: 'word', pid: 1 },
  });
});
beforeEach(() => void sent.splice(0));
afterAll(() => new Promise((resolve) => server.close(resolve)));

const JSON_TYPE = 'application/json';

test.each([
  ['set', (clock) => clock.set(new Date(0)), { set: '1970-01-01T00:00:00.000Z' }],
  ['advance', (clock) => clock.advance('3 days'), { advance: '3 days' }],
  ['freeze', (clock) => clock.freeze(), { freeze: true }],
  ['unfreeze', (clock) => clock.unfreeze(), { freeze: false }],
  ['reset', (clock) => clock.reset(), { real: true }],
] as [string, (clock: PenstockClient['clock']) => Promise<unknown>, object][])(
  'clock.%s sends its change to /_dev/clock',
  async (_, change, body) => {
    await change(penstock.clock);
    expect(sent).toEqual([['POST /_dev/clock', JSON_TYPE, JSON.stringify(body)]]);
  },
);

test('clock.get reads /_dev/clock', async () => {
  await penstock.clock.get();
  expect(sent).toEqual([['GET /_dev/clock', JSON_TYPE, '']]);
});

test('seed sends an object as JSON and a text as YAML', async () => {
  await penstock.seed({ users: [{ external_id: 'ada' }] });
  await penstock.seed('users:\n  - external_id: ada\n');
  expect(sent).toEqual([
    ['POST /_dev/seed', JSON_TYPE, '{"users":[{"external_id":"ada"}]}'],
    ['POST /_dev/seed', 'application/yaml', 'users:\n  - external_id: ada\n'],
  ]);
});
