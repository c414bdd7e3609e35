import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readJsonObject } from '../../src/edge/body.ts';
import { answerBrokenRequests } from '../../src/edge/heads.ts';
import { createReading } from '../../src/edge/reading.ts';
import { type ErrorName, errorBodyOf, errors } from '../../src/errors.ts';
import { createLog, createStrangersLog } from '../../src/platform/log.ts';
import { ResponseOrder } from '../../src/platform/response-order.ts';

const rules = {
  limit: 1000,
  reading: createReading({
    maxBytes: 1000,
    maxSmallBytes: 10_000,
    maxWaiting: 1,
    patience: 1000,
    collectGarbage: () => {},
  }),
};

let server: Server;
/** Result of each request that reached the handler. */
const ends: string[] = [];
beforeAll(async () => {
  const order = new ResponseOrder();
  const handle = order.inOrder(async (request, response) => {
    if (request.url === '/late') await once(response, 'close');
    Object.assign(request, { res: response });
    const body = await readJsonObject(request, rules).catch((error: Error) => error.message);
    ends.push(typeof body === 'string' ? body : 'read');
    response.end('{}');
  });
  server = createServer({ connectionsCheckingInterval: 20 }, handle);
  order.watch(server);
  server.headersTimeout = 200;
  server.requestTimeout = 300;
  answerBrokenRequests(server, createStrangersLog(createLog('test', 'silent')), order);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
});

/** Sends text unchanged, and returns the answer once the connection is closed. */
async function exchange(text: string): Promise<string> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  let answer = '';
  socket.on('data', (data) => {
    answer += data;
  });
  socket.on('error', () => {});
  socket.write(text);
  await once(socket, 'close');
  return answer;
}

describe('input that never becomes a request is answered in JSON', () => {
  test.for<[what: string, text: string, entry: ErrorName]>([
    ['input that is not HTTP', 'GARBAGE\r\n\r\n', 'malformedRequest'],
    [
      'a length that is not a number',
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n',
      'malformedRequest',
    ],
    ['headers without end', `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 'headersTooLarge'],
    ['headers that do not come', 'GET / HTTP/1.1\r\nHost: a\r\n', 'bodyTooSlow'],
    ['a body that does not come', 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{', 'bodyTooSlow'],
  ])('%s', async ([_what, text, entry]) => {
    const [head, body] = (await exchange(text)).split('\r\n\r\n') as [string, string];
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${errors[entry].status} `));
    expect(head).toMatch(/\r\nContent-Type: application\/json; charset=utf-8\r\n/);
    expect(head).toMatch(/\r\nX-Request-Id: [0-9a-f-]{36}\r\n/);
    expect(JSON.parse(body)).toEqual(errorBodyOf(entry));
  });

  test('a client that disconnects in the middle of a body ends its request with 408', async () => {
    ends.length = 0;
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{');
    await once(server, 'request');
    socket.destroy();
    await expect.poll(() => [...new Set(ends)]).toEqual(['Request Timeout']);
  });

  test.each([
    ['the whole body', '{}'],
    ['half a body', '{'],
  ])('a client that disconnects with %s sent but not read ends its request', async (_, body) => {
    ends.length = 0;
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.write(`POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n${body}`);
    await once(server, 'request');
    socket.destroy();
    await expect.poll(() => ends).toEqual(['Request Timeout']);
  });
});
