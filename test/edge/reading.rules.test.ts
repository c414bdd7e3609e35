import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { readBody } from '../../src/edge/body.ts';
import { answerBrokenRequests } from '../../src/edge/heads.ts';
import { createReading, type Reading, SMALL_BODY } from '../../src/edge/reading.ts';
import { createLog, createStrangersLog } from '../../src/platform/log.ts';
import { ResponseOrder } from '../../src/platform/response-order.ts';
import { waitUntil } from '../setup/wait-until.ts';

const LARGE = 400_000;
const LIMIT = 4_000_000;

let server: Server | undefined;
let order: ResponseOrder;
afterEach(() => {
  server?.close();
  server?.closeAllConnections();
});

interface Scene {
  reading: Reading;
  /** Bytes of each body that has been read, in the order of reading. */
  read: number[];
  /** Number of garbage collections. */
  collections(): number;
  /** Answers all requests whose bodies have been read. */
  answer(): void;
  /** Starts a request, and sends this part of its body. */
  begin(headers: string, body: string | Buffer): Socket;
}

/** Starts a server with this much room, which answers when the test calls `answer`. */
async function open(maxBytes: number, patience = 60_000, maxWaiting = 10): Promise<Scene> {
  let collections = 0;
  const collectGarbage = () => void collections++;
  const reading = createReading({
    maxBytes,
    maxSmallBytes: 10_000_000,
    maxWaiting,
    patience,
    collectGarbage,
  });
  const read: number[] = [];
  const held: (() => void)[] = [];
  order = new ResponseOrder();
  const handle = order.inOrder(async (request, response) => {
    Object.assign(request, { res: response });
    try {
      const body = await readBody(request, { limit: LIMIT, reading });
      read.push(body.length);
      held.push(() => response.end(String(body.length)));
    } catch (error) {
      const { status, headers } = error as { status: number; headers: Record<string, string> };
      response.writeHead(status, headers).end();
    }
  });
  server = createServer({ connectionsCheckingInterval: 20 }, handle);
  order.watch(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    reading,
    read,
    collections: () => collections,
    answer: () => held.splice(0).map((end) => end()),
    begin(headers, body) {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => {});
      socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${headers}\r\n\r\n`);
      socket.write(body);
      return socket;
    },
  };
}

const lengthOf = (bytes: number) => `Content-Length: ${bytes}`;

/** A body in one chunk, without the final chunk. */
const chunk = (bytes: number) => `${bytes.toString(16)}\r\n${'x'.repeat(bytes)}\r\n`;

async function firstLine(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (data) => {
    text += data;
  });
  await waitUntil(() => text.includes('\r\n\r\n'), { what: 'an answer' });
  return text;
}

test('G5: large bodies are admitted while there is room, and the others in order of arrival', async () => {
  const { reading, read, answer, begin } = await open(2 * LARGE + 100);
  for (let index = 0; index < 5; index++) {
    begin(lengthOf(LARGE + index), 'x'.repeat(LARGE + index));
    // Two connections that are opened at the same time may arrive in either order.
    await waitUntil(() => read.length === Math.min(index + 1, 2), { what: 'it to be read, or to wait' });
  }
  expect(reading.held()).toBe(2 * LARGE + 1);
  for (const count of [4, 5]) {
    answer();
    await waitUntil(() => read.length === count, { what: 'the next' });
  }
  answer();
  await waitUntil(() => reading.held() === 0, { what: 'all room to be given back' });
  expect([...read].sort()).toEqual([0, 1, 2, 3, 4].map((index) => LARGE + index));
});

test('G5: small bodies never wait', async () => {
  const { read, begin } = await open(LARGE);
  begin(lengthOf(LARGE), 'x'.repeat(LARGE / 2));
  begin(lengthOf(LARGE), 'x'.repeat(LARGE));
  const small = SMALL_BODY - 100;
  begin(lengthOf(small), 'x'.repeat(small));
  begin('Transfer-Encoding: chunked', `${chunk(small)}0\r\n\r\n`);
  const packed = gzipSync('x'.repeat(small));
  begin(`${lengthOf(packed.length)}\r\nContent-Encoding: gzip`, packed);
  await waitUntil(() => read.length === 3, { what: 'the small ones' });
  expect(read).toEqual([small, small, small]);
});

test.each([
  ['without a length', 'Transfer-Encoding: chunked', `${chunk(LARGE)}0\r\n\r\n`],
  [
    'that is large after unpacking',
    `${lengthOf(gzipSync('x'.repeat(LARGE)).length)}\r\nContent-Encoding: gzip`,
    gzipSync('x'.repeat(LARGE)),
  ],
])('G5: a body %s waits as well, and keeps only the room that it uses', async (_, headers, body) => {
  const { reading, read, begin } = await open(LARGE + 1);
  const first = begin(lengthOf(LARGE), 'x'.repeat(LARGE / 2));
  await waitUntil(() => reading.held() === LARGE, { what: 'the first to be let in' });
  begin(headers, body);
  const small = begin(lengthOf(1), 'x');
  await waitUntil(() => read.length === 1, { what: 'a small one behind it' });
  small.destroy();
  expect(read).toEqual([1]);
  first.destroy();
  await waitUntil(() => read.length === 2, { what: 'it to be read' });
  expect([read[1], reading.held()]).toEqual([LARGE, LARGE]);
});

test('G5: a body without a length is never held in a buffer above the limit', async () => {
  const { read, begin } = await open(LIMIT);
  const allocate = vi.spyOn(Buffer, 'allocUnsafeSlow');
  onTestFinished(() => allocate.mockRestore());
  const length = LIMIT - 100_000;
  begin('Transfer-Encoding: chunked', `${chunk(length)}0\r\n\r\n`);
  await waitUntil(() => read.length === 1, { what: 'it to be read' });
  expect(read).toEqual([length]);
  expect(Math.max(...allocate.mock.calls.map(([bytes]) => bytes))).toBeLessThanOrEqual(LIMIT);
});

test('G5: a request that has waited too long gets 503 with Retry-After, and the next continues', async () => {
  const { reading, read, begin } = await open(LARGE, 200);
  const first = begin(lengthOf(LARGE), 'x');
  await waitUntil(() => reading.held() === LARGE, { what: 'the first to be let in' });
  const text = await firstLine(begin(lengthOf(LARGE), 'x'.repeat(LARGE)));
  expect(text).toMatch(/^HTTP\/1.1 503 .*Retry-After: 1\r\n/s);
  first.destroy();
  await waitUntil(() => reading.held() === 0, { what: 'its room to be given back' });
  begin(lengthOf(LARGE), 'x'.repeat(LARGE));
  await waitUntil(() => read.length === 1, { what: 'the next' });
});

test('G5: a request that arrives while too many wait gets 503 at once', async () => {
  const { reading, begin } = await open(LARGE, 60_000, 0);
  begin(lengthOf(LARGE), 'x');
  await waitUntil(() => reading.held() === LARGE, { what: 'the first to be let in' });
  expect(await firstLine(begin(lengthOf(LARGE), 'x'))).toMatch(/^HTTP\/1.1 503 /);
});

test('G5: waiting for room does not extend the time limit of a body: 408', async () => {
  const { reading, begin } = await open(LARGE);
  answerBrokenRequests(server!, createStrangersLog(createLog('test', 'silent')), order);
  server!.requestTimeout = 300;
  server!.headersTimeout = 200;
  begin(lengthOf(LARGE), 'x');
  await waitUntil(() => reading.held() === LARGE, { what: 'the first to be let in' });
  expect(await firstLine(begin(lengthOf(LARGE), 'x'))).toMatch(/^HTTP\/1.1 408 /);
  await waitUntil(() => reading.held() === 0, { what: 'all room to be given back' });
});

test('G5: a client that disconnects while waiting gives up its position', async () => {
  const { reading, read, begin } = await open(LARGE);
  const first = begin(lengthOf(LARGE), 'x');
  await waitUntil(() => reading.held() === LARGE, { what: 'the first to be let in' });
  begin(lengthOf(LARGE), 'x').destroy();
  begin(lengthOf(LARGE), 'x'.repeat(LARGE));
  first.destroy();
  await waitUntil(() => read.length === 1, { what: 'the one that is still there' });
  expect(reading.held()).toBe(LARGE);
});

test('G5: garbage is collected once per quarter of the room used, for huge bodies only', async () => {
  const { reading, read, answer, begin, collections } = await open(8_000_000);
  let requests = 0;
  /** Sends one body, and waits until it has been answered and its room has been returned. */
  async function send(headers: string, body: string): Promise<void> {
    begin(headers, body);
    requests++;
    await waitUntil(() => read.length === requests, { what: 'it to be read' });
    answer();
    await waitUntil(() => reading.held() === 0, { what: 'its room to be given back' });
  }
  for (let index = 0; index < 8; index++)
    await send('Transfer-Encoding: chunked', `${chunk(LARGE)}0\r\n\r\n`);
  for (let index = 0; index < 2; index++) {
    const aborted = begin(lengthOf(LIMIT), 'x');
    await waitUntil(() => reading.held() === LIMIT, { what: 'it to be let in' });
    aborted.destroy();
    await waitUntil(() => reading.held() === 0, { what: 'its room to be given back' });
  }
  expect(collections()).toBe(0);
  const huge = 1_200_000;
  for (const expected of [0, 1, 1, 2]) {
    await send(lengthOf(huge), 'x'.repeat(huge));
    expect(collections()).toBe(expected);
  }
});
