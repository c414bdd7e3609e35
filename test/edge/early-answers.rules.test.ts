import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { answerBrokenRequests } from '../../src/edge/heads.ts';
import { limitConnections } from '../../src/platform/listen.ts';
import { createLog, createStrangersLog } from '../../src/platform/log.ts';
import { ResponseOrder } from '../../src/platform/response-order.ts';

let server: Server;
let port: number;
/** Paths of the requests that reached the handler. */
const requested: string[] = [];
beforeAll(async () => {
  const order = new ResponseOrder();
  const handle = order.inOrder((request, response) => {
    requested.push(request.url!);
    // Answers before the body has arrived, as a refusal or load shedding does.
    response.writeHead(503, { Connection: 'close', 'Content-Length': 2 }).end('{}');
  });
  server = createServer({ connectionsCheckingInterval: 20 }, handle);
  order.watch(server);
  limitConnections(server);
  server.requestTimeout = 300;
  answerBrokenRequests(server, createStrangersLog(createLog('test', 'silent')), order);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
});

const MB = 1_048_576;

/**
 * Connects as a client that continues to send after the server has closed its side. Node's own clients would stop.
 */
const dial = () => connect({ port, host: '127.0.0.1', allowHalfOpen: true });

/** Resolves when the connection is closed, with or without an error. */
const isClosed = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));

/** Sends the whole text before it reads. @returns the answer, and the code of the connection's error, if any */
async function sendThenRead(text: string): Promise<{ answer: string; error: string | undefined }> {
  const socket = dial();
  let answer = '';
  let error: string | undefined;
  socket.on('error', (one: NodeJS.ErrnoException) => {
    error = one.code;
  });
  const closed = isClosed(socket);
  await once(socket, 'connect');
  socket.pause();
  await new Promise((resolve) => socket.write(text, resolve));
  socket.on('data', (data) => {
    answer += data;
  });
  socket.resume();
  socket.end();
  await closed;
  return { answer, error };
}

const body = 'x'.repeat(4 * MB);
const post = (path: string) => `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`;

test.each([
  ['a body that is refused before it has arrived', `${post('/')}${body}`, 503],
  [
    'a refused body after an unknown Expect header',
    `${post('/').replace('Host', 'Expect: wonders\r\nHost')}${body}`,
    503,
  ],
  ['input that is not HTTP', `GARBAGE\r\n\r\n${body}`, 400],
  ['headers without end', `GET / HTTP/1.1\r\nHost: a\r\nX: ${body}`, 431],
])('a client that sends 4 MB before it reads gets the status of %s, not a reset', async (_, text, status) => {
  for (let time = 0; time < 5; time++) {
    const { answer, error } = await sendThenRead(text);
    expect(error).toBeUndefined();
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(answer.match(/HTTP\/1.1/g)).toHaveLength(1);
  }
});

test('requests after an answer that closes its connection are not handled', async () => {
  requested.length = 0;
  const next = 'GET /next HTTP/1.1\r\nHost: a\r\n\r\n';
  const socket = dial();
  socket.write(`${post('/first')}${body.slice(1)}`);
  await once(socket, 'data');
  socket.end(`x${next}${next}`);
  await isClosed(socket);
  expect(requested).toEqual(['/first']);
});

test('G5: a client that continues to send after such an answer is cut off by size or time', async () => {
  const endless = dial();
  endless.on('error', () => {});
  endless.resume();
  const chunk = Buffer.alloc(MB);
  let written = 0;
  const send = (error?: Error | null) => {
    if (error || endless.destroyed) return;
    written += chunk.length;
    endless.write(chunk, send);
  };
  endless.write(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${4096 * MB}\r\n\r\n`, send);
  const silent = dial();
  silent.on('error', () => {});
  silent.resume();
  // It keeps its side open without sending more.
  silent.write(post('/'));
  await isClosed(endless);
  expect(written).toBeLessThan(64 * MB);
  const open = () => new Promise((resolve) => server.getConnections((_, count) => resolve(count)));
  await expect.poll(open, { timeout: 10_000 }).toBe(0);
  silent.destroy();
});
