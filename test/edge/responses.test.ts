import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from 'vitest';
import { answerBrokenRequests } from '../../src/edge/heads.ts';
import { Responses } from '../../src/edge/responses.ts';
import { limitConnections, serverOptions } from '../../src/platform/listen.ts';
import { createLog, createStrangersLog } from '../../src/platform/log.ts';
import type { Json } from '../../src/profile/json.ts';
import { waitUntil } from '../setup/wait-until.ts';

/** More than the kernel buffers for a receiver that does not read. */
const LARGE = Buffer.alloc(16_777_216, 'x');

let server: Server;
let responses: Responses;
/** Paths of the requests that were started, in order. */
let begun: string[];
const clients: Socket[] = [];

afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  server.close();
  server.closeAllConnections();
});

async function serve(handle: (path: string, response: ServerResponse) => void): Promise<number> {
  responses = new Responses(33_554_432);
  begun = [];
  server = createServer(
    serverOptions,
    responses.order.inOrder((request, response) => {
      begun.push(request.url!);
      handle(request.url!, response);
    }),
  );
  limitConnections(server);
  answerBrokenRequests(server, createStrangersLog(createLog('test', 'silent')), responses.order);
  void responses.order.watch(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function open(port: number, sent: string): Promise<Socket> {
  const client = connect(port, '127.0.0.1');
  clients.push(client);
  client.on('error', () => {});
  await once(client, 'connect');
  client.write(sent);
  return client;
}

const get = (...paths: string[]) => paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`).join('');

describe('requests of one connection', () => {
  test('start one after the other, each after the previous response was read', async () => {
    const port = await serve((path, response) => response.end(path === '/large' ? LARGE : path));
    const client = await open(port, get('/large', ...Array(300).fill('/small')));
    client.pause();
    await waitUntil(() => begun.length === 1, { what: 'the first request' });
    // Other connections are served in the meantime.
    for (let other = 0; other < 3; other++) await fetch(`http://127.0.0.1:${port}/other`);
    expect(begun.filter((path) => path !== '/other')).toEqual(['/large']);
    let bytes = 0;
    client.on('data', (chunk) => {
      bytes += chunk.length;
    });
    client.resume();
    await waitUntil(() => begun.filter((path) => path === '/small').length === 300, { what: 'all requests' });
    expect(bytes).toBeGreaterThan(LARGE.length);
  });

  test('are dropped after a response that closes the connection', async () => {
    const port = await serve((path, response) =>
      response.setHeader('Connection', path === '/last' ? 'close' : 'keep-alive').end(path),
    );
    const client = await open(port, get('/first', '/last', '/never'));
    const received = await text(client);
    expect(received.match(/HTTP\/1.1 200/g)).toHaveLength(2);
    expect(begun).toEqual(['/first', '/last']);
  });

  test('wait within 8 MB, and above that the connection with most of them is closed', async () => {
    const port = await serve((path, response) => {
      if (path !== '/waits') response.end('done');
    });
    const many = await open(port, get('/waits', ...Array(1200).fill('/x')));
    const few = await open(port, get('/waits', '/x'));
    await waitUntil(() => begun.length === 2, { what: 'the first of each' });
    const more = await open(port, get('/waits', ...Array(1100).fill('/x')));
    await once(many.resume(), 'close');
    expect([few.destroyed, more.destroyed]).toEqual([false, false]);
  });
});

describe('a client that closes its sending half after the request', () => {
  test('receives a slow response before the connection is closed', async () => {
    const port = await serve((path, response) => void setTimeout(() => response.end(`done ${path}`), 50));
    const client = await open(port, '');
    client.end(get('/first', '/second'));
    const received = await text(client);
    expect(received).toContain('done /first');
    expect(received).toContain('done /second');
  });
});

test('a complete request is answered even if it is followed by input that is not HTTP', async () => {
  const port = await serve((path, response) => void setTimeout(() => response.end(`done ${path}`), 50));
  const received = await text(await open(port, `${get('/first', '/second')}no http\r\n\r\n`));
  expect(received.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 400']);
});

describe('a receiver that does not read', () => {
  test('is cut off after 30 s, while one that reads is not', async () => {
    const port = await serve((_, response) => response.end(LARGE));
    const stalled = await open(port, get('/'));
    stalled.pause();
    await waitUntil(() => begun.length === 1, { what: 'the response' });
    const reading = await open(port, get('/'));
    reading.resume();
    await waitUntil(() => begun.length === 2, { what: 'the other response' });
    const now = performance.now();
    responses.order.runOnce(now);
    responses.order.runOnce(now + 29_000);
    expect(stalled.destroyed).toBe(false);
    responses.order.runOnce(now + 31_000);
    await once(stalled.resume(), 'close');
  });

  test('is cut off after 10 s if 64 KiB are required in that time', async () => {
    const port = await serve((_, response) => {
      responses.order.requireRate(response, { bytes: 65_536, milliseconds: 10_000 });
      response.end(LARGE);
    });
    const stalled = await open(port, get('/'));
    stalled.pause();
    await waitUntil(() => begun.length === 1, { what: 'the response' });
    const now = performance.now();
    responses.order.runOnce(now);
    responses.order.runOnce(now + 11_000);
    await once(stalled.resume(), 'close');
  });
});

describe('a large response', () => {
  test('is sent completely in pieces, and frees its bytes as they are read', async () => {
    const users = Array.from({ length: 200 }, (_, index) => ({ id: index, text: 'é'.repeat(20_000) }));
    const sent = JSON.stringify({ users, message: 'success' });
    let held = 0;
    const port = await serve(async (_, response) => {
      const body = { users: structuredClone(users), message: 'success' };
      const encoded = await responses.encode(body, { owner: 'w', isLarge: true });
      if (typeof encoded === 'string') throw new Error('it is not large');
      held = responses.held();
      response.writeHead(200, ['Content-Length', String(encoded.bytes)]);
      responses.sendPieces(response, encoded);
    });
    const answer = await fetch(`http://127.0.0.1:${port}/`);
    expect((await answer.text()) === sent).toBe(true);
    expect(held).toBe(Buffer.byteLength(sent));
    await waitUntil(() => responses.held() === 0, { what: 'the bytes to be returned' });
  });

  test('has the same text as JSON.stringify for any content', async () => {
    await serve((_, response) => response.end());
    const bodies = [
      {},
      { a: undefined, b: [undefined, null, 1, 'x', [], {}], c: {}, d: [] },
      { '"': [{ a: undefined }], e: 'é' },
      [1, undefined],
      'text',
    ] as Json[];
    for (const body of bodies) {
      const text = JSON.stringify(body);
      expect(await responses.encode(body, { owner: 'w', isLarge: true })).toBe(text);
    }
  });

  test('is refused to a workspace that does not read its responses, before the work is repeated', async () => {
    const port = await serve(async (_, response) => {
      const encoded = await responses.encode({ text: 'x'.repeat(12_000_000) }, { owner: 'w', isLarge: true });
      if (typeof encoded !== 'string') responses.sendPieces(response, encoded);
    });
    const client = await open(port, get('/'));
    client.pause();
    await waitUntil(() => responses.held() > 0, { what: 'the first response' });
    await expect(
      responses.encode({ text: 'x'.repeat(12_000_000) }, { owner: 'w', isLarge: true }),
    ).rejects.toMatchObject({ status: 503 });
    expect(() => responses.requireLargeRoom('w')).toThrow('Service Unavailable');
    expect(() => responses.requireLargeRoom('other')).not.toThrow();
    expect(() => responses.requireRoom('w')).not.toThrow();
    client.destroy();
    await waitUntil(() => responses.held() === 0, { what: 'the bytes to be returned' });
    responses.requireLargeRoom('w');
  });
});
