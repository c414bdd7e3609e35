import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import { limitConnections } from '../../src/platform/listen.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** Milliseconds after which a client that stops sending must have been cut off. */
const CUT = 15_000;

let fleet: Fleet;
let port: number;
let key: string;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 1, env: { LOG_LEVEL: 'info' } });
  await liftLimits(fleet.pool, fleet.workspace.id);
  port = fleet.edges[0]!.port;
  key = fleet.workspace.key;
});
afterAll(() => fleet.stop());

/** Opens a connection that sends only this text. @returns milliseconds until it is closed, and the answer */
async function lasts(text: string): Promise<{ milliseconds: number; answer: string }> {
  const socket = connect(port, '127.0.0.1');
  let answer = '';
  socket.on('error', () => {});
  socket.on('data', (data) => {
    answer += data;
  });
  await once(socket, 'connect');
  const started = performance.now();
  socket.write(text);
  await once(socket, 'close');
  return { milliseconds: performance.now() - started, answer };
}

describe('time', () => {
  test.concurrent.each([
    ['headers that do not end', 'GET / HTTP/1.1\r\nHost: a\r\n'],
    ['a request line that does not end', 'GE'],
  ])('%s are cut off within 15 s with 408', async (_, text) => {
    const { milliseconds, answer } = await lasts(text);
    expect(answer).toMatch(/^HTTP\/1.1 408 /);
    expect(milliseconds).toBeLessThan(CUT);
  });

  test.concurrent('a body that does not end is cut off within 15 s with 408', async () => {
    const { milliseconds, answer } = await lasts(
      `POST /users/track HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{`,
    );
    expect(answer).toMatch(/^HTTP\/1.1 408 /);
    expect(milliseconds).toBeLessThan(CUT);
  });
});

describe('connections', () => {
  let server: Server;
  beforeAll(async () => {
    server = createServer();
    limitConnections(server);
  });

  test('the number of connections and their idle time are bounded', () => {
    expect(server.maxConnections).toBe(10_000);
    expect(server.headersTimeout).toBeLessThan(CUT);
    expect(server.requestTimeout).toBeLessThanOrEqual(CUT);
    expect(server.keepAliveTimeout).toBe(65_000);
  });

  test('a connection above the limit is dropped, and another one is accepted after one closes', async () => {
    server.maxConnections = 2;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port: capped } = server.address() as AddressInfo;
    const open = async () => {
      const socket = connect(capped, '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      return socket;
    };
    const held: Socket[] = [await open(), await open()];
    const third = await open();
    await once(third, 'close');
    held[0]!.destroy();
    await expect
      .poll(() => new Promise((resolve) => server.getConnections((_, count) => resolve(count))))
      .toBe(1);
    const fourth = await open();
    await expect
      .poll(() => new Promise((resolve) => server.getConnections((_, count) => resolve(count))))
      .toBe(2);
    for (const socket of [...held, fourth]) socket.destroy();
    server.close();
  });
});

describe('bodies', () => {
  const headers = `Host: a\r\nAuthorization: Bearer KEY\r\nContent-Type: application/json\r\n`;

  test('a body with a too large Content-Length is refused before it is sent', async () => {
    const socket = connect(port, '127.0.0.1');
    socket.write(
      `POST /users/track HTTP/1.1\r\n${headers.replace('KEY', key)}Content-Length: 5000000\r\n\r\n`,
    );
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1.1 413 /);
    socket.destroy();
  });

  test('64 concurrent gzip bombs of 60 MB each use no more memory than their limit', async () => {
    const bomb = gzipSync(Buffer.alloc(60_000_000, ' '));
    const memory = async () => {
      const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      return Number(/^process_resident_memory_bytes (\S+)/m.exec(page)![1]) / 1_000_000;
    };
    const shoot = () =>
      send(port, { path: '/users/track', key, raw: bomb, headers: { 'content-encoding': 'gzip' } });
    // Memory that the first request allocates is kept.
    await shoot();
    const before = await memory();
    const answers = await Promise.all(Array.from({ length: 64 }, shoot));
    // A few are unpacked at a time. On a busy machine the last ones time out while waiting for their turn.
    expect(new Set(answers.map(({ status }) => status).filter((status) => status !== 503))).toEqual(
      new Set([413]),
    );
    expect((await memory()) - before).toBeLessThan(64 * 4.2 + 50);
  });

  test('a body with a structure that parses slowly is refused with the rule, at little cost', async () => {
    const cases: [raw: string, rule: RegExp][] = [
      [`{"events":${'['.repeat(2_000_000)}${']'.repeat(2_000_000)}}`, /must not nest deeper than 50/],
      [`{"events":[${'{},'.repeat(1_300_000)}{}]}`, /more than 200,000 objects and arrays/],
      [
        `{"attributes":[{${Array.from({ length: 100_000 }, (_, index) => `"k${index}":0`).join(',')}}]}`,
        /must not have more than 20000 keys/,
      ],
    ];
    for (const [raw, rule] of cases) {
      const { status, body } = await send(port, { path: '/users/track', key, raw });
      expect([status, JSON.stringify(body)]).toEqual([400, expect.stringMatching(rule)]);
    }
  });
});

test('pages have a policy that allows no scripts or frames from other origins', async () => {
  for (const path of ['/docs', '/preferences/x']) {
    const page = await fetch(`http://127.0.0.1:${port}${path}`);
    const policy = page.headers.get('content-security-policy');
    expect([path, policy]).toEqual([path, expect.stringContaining("default-src 'none'")]);
    expect(page.headers.get('x-content-type-options')).toBe('nosniff');
    expect(page.headers.get('x-powered-by')).toBeNull();
  }
});

test('the answer to an unexpected error contains no stack, path or statement', async () => {
  await fleet.pool.query('alter table preference_centers rename to hidden');
  const path = '/preference_center/v1/list';
  const { status, body } = await send(port, { method: 'GET', path, key });
  await fleet.pool.query('alter table hidden rename to preference_centers');
  expect([status, body]).toEqual([500, errorBodyOf('internal')]);
  await waitUntil(() => fleet.edges[0]!.log.some(({ msg }) => msg === 'unexpected error'), {
    what: 'the line for the operator',
  });
});
