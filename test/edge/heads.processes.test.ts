import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { answerBrokenRequests, createHeads } from '../../src/edge/heads.ts';
import { serverOptions } from '../../src/platform/listen.ts';
import { createLog, createStrangersLog } from '../../src/platform/log.ts';
import { ResponseOrder } from '../../src/platform/response-order.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup } from '../setup/workspace.ts';

/** Encodes each byte as %XX, as a careful client may do for any name. */
const percent = (text: string) =>
  [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, '0').toUpperCase()}`).join('');

const ids = Array.from({ length: 50 }, (_, index) => `${index}-${'é'.repeat(492)}`.slice(0, 494 - 3));
const longest = Array.from({ length: 50 }, (_, index) => `${index}`.padStart(987, 'x'));
const emails = Array.from(
  { length: 50 },
  (_, index) => `${`${index}`.padStart(60, 'e')}@${'d'.repeat(60)}.example.com`,
);

describe('50 names of any allowed length fit into one query', () => {
  let fleet: Fleet;
  let group: string;
  beforeAll(async () => {
    fleet = await startFleet('redis', { edges: 1, workers: 0 });
    group = await createGroup(fleet.pool, fleet.workspace.id, 'email');
  });
  afterAll(() => fleet?.stop());

  const get = (path: string, headers: Record<string, string> = {}) =>
    send(fleet.edges[0]!.port, { method: 'GET', path, key: fleet.workspace.key, headers });
  const listed = (name: string, values: string[], brackets: string) =>
    values.map((value) => `${name}${brackets}=${percent(value)}`).join('&');

  test.for<[what: string, name: string, values: string[], brackets: string]>([
    ['external ids of 987 bytes', 'external_id', longest, ''],
    ['external ids of 987 bytes, as a list', 'external_id', longest, '%5B%5D'],
    ['external ids of other letters', 'external_id', ids, '%5B%5D'],
    ['emails', 'email', emails, '%5B%5D'],
  ])('%s: states of a group', async ([_, name, values, brackets]) => {
    const query = `subscription_group_id=${group}&${listed(name, values, brackets)}`;
    const { status, body } = await get(`/subscription/status/get?${query}`);
    expect([status, body.message]).toEqual([200, 'success']);
    expect(Object.keys(body.status)).toHaveLength(50);
  });

  test.each([
    ['external ids of 987 bytes', 'external_id', longest],
    ['emails', 'email', emails],
  ])('%s: groups of users', async (_, name, values) => {
    const { status, body } = await get(`/subscription/user/status?${listed(name, values, '%5B%5D')}`);
    expect([status, body.message]).toEqual([200, 'success']);
  });

  test('a head without a list in its query is refused with 431 above 16 KB', async () => {
    const long = percent('x'.repeat(6000));
    expect((await get(`/email/hard_bounces?email=${long}`)).status).toBe(431);
    expect((await get(`/scim/v2/Users?filter=${long}`)).status).toBe(431);
    expect((await get(`/subscription/status/get?external_id=ada`, { cookie: long })).status).toBe(431);
    expect((await get(`/${long}`)).status).toBe(431);
  });

  test('a request with 1,000 headers is refused with 431, and one with 900 is accepted', async () => {
    const headers = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`x-${index}`, '1']));
    const path = '/subscription/status/get?external_id=ada';
    expect((await get(path, headers(1000))).status).toBe(431);
    expect((await get(path, headers(5000))).status).toBe(431);
    expect((await get(path, headers(900))).status).not.toBe(431);
  });
});

describe('G5: the memory of all request heads together is bounded', () => {
  let server: Server;
  const sockets: Socket[] = [];
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy();
    server.close();
    server.closeAllConnections();
  });

  /** Starts a server that answers paths that begin with /now, and keeps all other requests open. */
  async function open(maxBytes: number) {
    const heads = createHeads(maxBytes);
    const accepted: Socket[] = [];
    let requests = 0;
    const order = new ResponseOrder();
    const handle = order.inOrder((request, response) => {
      requests++;
      const refusal = heads.admit(request, response, () => true);
      if (refusal) response.writeHead(503).end();
      else if (request.url!.startsWith('/now')) request.resume().on('end', () => response.end('done'));
    });
    server = createServer(serverOptions, handle);
    order.watch(server);
    const watched = heads.watch(server);
    server.on('connection', (socket) => accepted.push(socket));
    server.once('close', () => watched.stop());
    answerBrokenRequests(server, createStrangersLog(createLog('test', 'silent')), order);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return {
      requests: () => requests,
      accepted,
      begin(text: string): { text(): string; socket: Socket } {
        const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
        sockets.push(socket);
        let answer = '';
        socket.on('error', () => {});
        socket.on('data', (data) => {
          answer += data;
        });
        socket.write(text);
        return { text: () => answer, socket };
      },
    };
  }

  test('the arriving head that began first is cut off with 503 in JSON and Retry-After', async () => {
    const { begin } = await open(100_000);
    const first = begin(`GET /${'x'.repeat(60_000)}`);
    const second = begin(`GET /now${'x'.repeat(60_000)}`);
    await waitUntil(() => first.socket.destroyed, { what: 'the first to be cut off' });
    expect(first.text()).toMatch(/^HTTP\/1.1 503 .*Retry-After: 1\r\n.*"message":"Service Unavailable"/s);
    second.socket.write(' HTTP/1.1\r\nHost: a\r\n\r\n');
    await waitUntil(() => second.text().includes('done'), { what: 'the other to be answered' });
  });

  test('concurrent heads on many connections are counted as they are read, not at the next check', async () => {
    const maxBytes = 2_000_000;
    const { begin, accepted } = await open(maxBytes);
    const connections = Array.from({ length: 600 }, () => begin(''));
    await waitUntil(() => accepted.length === connections.length, { what: 'all to be connected' });
    const read = () => accepted.reduce((sum, { bytesRead }) => sum + bytesRead, 0);
    let readAtFirst: number | undefined;
    server.once('clientError', () => {
      readAtFirst = read();
    });
    const head = `GET /${'x'.repeat(60_000)}`;
    for (const { socket } of connections) socket.write(head);
    await waitUntil(() => readAtFirst !== undefined, { what: 'the first to be cut off' });
    // A chunk of one connection is read before it can be counted.
    expect(readAtFirst).toBeLessThan(maxBytes + 65_536);
    expect(read()).toBeGreaterThan(maxBytes);
  });

  test('while long heads are being answered, the next one is refused', async () => {
    const { begin, requests } = await open(100_000);
    const first = begin(`GET /${'x'.repeat(60_000)} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await waitUntil(() => requests() === 1, { what: 'the first to be in hand' });
    const second = begin(`GET /now${'x'.repeat(60_000)} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await waitUntil(() => second.text().startsWith('HTTP/1.1 503 '), { what: 'the second to be refused' });
    first.socket.destroy();
    await waitUntil(
      async () => {
        const next = begin(`GET /now${'x'.repeat(60_000)} HTTP/1.1\r\nHost: a\r\n\r\n`);
        await waitUntil(() => next.text() !== '', { what: 'an answer' });
        return next.text().includes('done');
      },
      { what: 'one to be answered when the first is gone' },
    );
  });

  test('bytes of complete requests with bodies do not count', async () => {
    const { begin } = await open(50_000);
    const { text, socket } = begin('');
    const body = 'x'.repeat(2000);
    for (let index = 1; index <= 90; index++) {
      if (index % 3 === 0) socket.write('GET /now HTTP/1.1\r\nHost: a\r\n\r\n');
      else if (index % 3 === 1)
        socket.write(`POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n${body}`);
      else
        socket.write(
          `POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n${body}\r\n0\r\n\r\n`,
        );
      await waitUntil(() => text().split('done').length === index + 1, { what: 'an answer' });
    }
    // Time for several checks.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(socket.destroyed).toBe(false);
    expect(text()).not.toContain('503');
  });
});
