import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createCaller, refusalOfUrl } from '../../src/platform/outgoing.ts';
import { createReach, RefusedAddress } from '../../src/platform/reach.ts';
import { waitUntil } from '../setup/fixtures.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

let answer: RequestListener;
let requested: string[] = [];
const server = createServer((request, response) => {
  requested.push(`${request.method} ${request.url} ${request.headers['x-mark']}`);
  response.on('error', () => {});
  answer(request, response);
});
let url: string;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const caller = createCaller(createReach({ refused: 'none' }));
afterAll(() => caller.close());
const request = { headers: { 'x-mark': 'one' }, body: '{"a":"ä"}', milliseconds: 5000 };

test('a request is delivered, and its response is returned', async () => {
  answer = async (incoming, response) => {
    response.statusCode = 202;
    for await (const chunk of incoming) response.write(chunk);
    response.end();
  };
  expect(await caller.post(`${url}/in?x=1`, request)).toMatchObject({ status: 202, body: request.body });
  expect(requested.at(-1)).toBe('POST /in?x=1 one');
});

test.each([301, 302, 303, 307, 308])(
  'a redirect (%i) is returned as a response, and not followed',
  async (status) => {
    requested = [];
    answer = (_, response) => void response.writeHead(status, { location: `${url}/elsewhere` }).end();
    expect(await caller.post(`${url}/in`, request)).toMatchObject({ status });
    expect(requested).toEqual(['POST /in one']);
  },
);

test('the first 16 KiB of an endless response are read', async () => {
  answer = (_, response) => {
    const more = () => {
      while (!response.destroyed && response.write('x'.repeat(65_536)));
    };
    response.on('drain', more);
    more();
  };
  const { body } = await caller.post(url, request);
  expect(body).toBe('x'.repeat(16_384));
});

test.each<[string, RequestListener]>([
  ['does not answer', () => {}],
  ['never ends its answer', (_, response) => void response.write('x')],
])('a receiver that %s is given up after the timeout', async (_, listener) => {
  answer = listener;
  const given = caller.post(url, { ...request, milliseconds: 100 });
  await expect(given).rejects.toMatchObject({ name: 'TimeoutError' });
});

test('a receiver that never answers is given up after the timeout, also after a collection', async () => {
  requested = [];
  answer = () => {};
  const given = caller.post(url, { ...request, milliseconds: 500, signal: new AbortController().signal });
  const ended = given.catch((error: Error) => error.name);
  await waitUntil(() => requested.length > 0, { what: 'the request' });
  collectGarbage();
  const late = waitUntil(() => false, { what: 'the limit', deadline: 5000 });
  expect(await Promise.race([ended, late])).toBe('TimeoutError');
  late.catch(() => {});
});

test('a refused address is never connected to, by itself or by a name', async () => {
  requested = [];
  const closed = createCaller(createReach({ refused: 'private' }));
  const byName = url.replace('127.0.0.1', 'localhost');
  for (const to of [url, byName, url.replace('127.0.0.1', '[::ffff:127.0.0.1]')])
    await expect(closed.post(to, request)).rejects.toThrow(RefusedAddress);
  expect(requested).toEqual([]);
});

test.each([
  ['ftp://example.com', 'http:// or https://'],
  ['example.com/in', 'http:// or https://'],
  ['https://', 'http:// or https://'],
  ['https://me:secret@example.com', 'user or a password'],
  ['https://example.com/#part', 'fragment'],
  [`https://example.com/${'x'.repeat(2000)}`, '2000 characters'],
])('%s is rejected with its rule', (wrong, rule) => {
  expect(refusalOfUrl(wrong)).toContain(rule);
  expect(refusalOfUrl('https://example.com:8443/in?x=1')).toBeUndefined();
});
