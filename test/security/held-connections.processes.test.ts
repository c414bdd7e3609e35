import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { signLink } from '../../src/preferences/link.ts';
import { residentMegabytes } from '../../tools/resident-megabytes.ts';
import { createScene, openCenter, type Scene, tokenOf } from '../preferences/scene.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** Connections that are held open; each process of the test needs as many file descriptors. */
const MANY = Number(process.env.HELD_CONNECTIONS ?? 2000);

/** Bytes of a held body: below the size at which bodies have to wait for memory. */
const HELD = 131_000;

/** Milliseconds for which connections without an answer are observed. */
const HOLDING = 1500;

/**
 * Limit of the web process's growth, in megabytes: several times all budgets, and some KB per connection.
 * Node 24 uses
 * twice as much per connection as Node 20.
 */
const MAX_GROWTH = 300;

/**
 * Limit of the growth during a burst, in megabytes. It includes data that arrives before connections can be
 * closed: a chunk
 * of 64 KB for each of thousands.
 */
const MAX_BURST = 1.5 * MAX_GROWTH;

let scene: Scene;
let signed: string;
let base: number;
beforeAll(async () => {
  scene = await createScene('redis', {
    MAX_SMALL_BODIES_BYTES: String(16 * 1024 * 1024),
    // Only the answers of the attempts count; others are not measured.
    LOG_LEVEL: 'error',
  });
  signed = tokenOf((await openCenter(scene, 'ada')).url);
  for (let warm = 0; warm < 300; warm++) await good();
  base = residentMegabytes(scene.fleet.edges[0]!.pid)!;
});
afterAll(() => scene?.stop());

const held: Socket[] = [];
afterEach(async () => {
  for (const socket of held.splice(0)) socket.destroy();
  await waitUntil(async () => (await good()) === 201, { what: 'everybody to be gone' });
});

/** Sends a complete request, as a well-behaved client does. */
async function good(): Promise<number> {
  const { status } = await scene.api('POST', '/users/track', { attributes: [{ external_id: 'grace' }] });
  return status;
}

const lengthy = `Content-Length: ${HELD + 1}`;
const json = 'Content-Type: application/json';
const form = 'Content-Type: application/x-www-form-urlencoded';
const body = `a=${'x'.repeat(HELD - 2)}`;
const chunks = '1\r\nx\r\n'.repeat(10_000);
const forged = signLink(
  {
    workspaceId: '019c13ec-a2e2-7000-8000-000000000001',
    centerId: '019c13ec-a2e2-7000-8000-000000000002',
    profileId: '019c13ec-a2e2-7000-8000-000000000003',
    madeAt: Date.now(),
    expiresAt: Date.now() + 1_000_000_000,
  },
  Buffer.alloc(32, 1),
);
/** Returns a link of the existing workspace with an invalid signature. The key of the workspace is cached. */
const forgedHere = () => `${signed.slice(0, -1)}${signed.endsWith('A') ? 'B' : 'A'}`;
const key = () => `Authorization: Bearer ${scene.workspace.key}`;

/** Requests that an attacker holds open, and the answer to each connection. */
const cases: [what: string, count: number, head: () => string, rest: string, answer: RegExp | undefined][] = [
  [
    'forms to links with an invalid signature',
    MANY,
    () => `POST /preferences/${forged} HTTP/1.1\r\n${form}\r\n${lengthy}`,
    body,
    /^HTTP\/1.1 (404|503) /,
  ],
  [
    'forms to links of a workspace that there is, with a wrong signature',
    MANY,
    () => `POST /preferences/${forgedHere()} HTTP/1.1\r\n${form}\r\n${lengthy}`,
    body,
    /^HTTP\/1.1 (404|503) /,
  ],
  [
    'forms to a signed link',
    MANY,
    () => `POST /preferences/${signed} HTTP/1.1\r\n${form}\r\n${lengthy}`,
    body,
    undefined,
  ],
  [
    'bodies without a key',
    MANY,
    () => `POST /users/track HTTP/1.1\r\n${json}\r\n${lengthy}`,
    body,
    /^HTTP\/1.1 401 /,
  ],
  [
    'bodies with made-up keys',
    MANY,
    () =>
      `POST /users/track HTTP/1.1\r\nAuthorization: Bearer made-up-${Math.random()}\r\n${json}\r\n${lengthy}`,
    body,
    /^HTTP\/1.1 401 /,
  ],
  [
    'bodies with a made-up SCIM token',
    MANY,
    () => `POST /scim/v2/Users HTTP/1.1\r\nAuthorization: Bearer made-up\r\n${json}\r\n${lengthy}`,
    body,
    /^HTTP\/1.1 401 /,
  ],
  [
    'bodies with a key',
    MANY,
    () => `POST /users/track HTTP/1.1\r\n${key()}\r\n${json}\r\n${lengthy}`,
    body,
    undefined,
  ],
  [
    'bodies in chunks of one byte, with a key',
    150,
    () => `POST /users/track HTTP/1.1\r\n${key()}\r\n${json}\r\nTransfer-Encoding: chunked`,
    chunks,
    undefined,
  ],
  [
    'bodies in chunks of one byte, with made-up keys',
    150,
    () =>
      `POST /users/track HTTP/1.1\r\nAuthorization: Bearer made-up-${Math.random()}\r\n${json}\r\nTransfer-Encoding: chunked`,
    chunks,
    /^HTTP\/1.1 401 /,
  ],
  [
    'bodies in chunks of one byte, to a path that reads no body',
    150,
    () => 'GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked',
    chunks,
    /^HTTP\/1.1 200 /,
  ],
];

/** Returns the longest delay of the web process's event loop since the last call, in milliseconds. */
async function longestStall(): Promise<number> {
  const page = await (await fetch(`http://127.0.0.1:${scene.port}/metrics`)).text();
  return Math.round(1000 * Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(page)?.[1]));
}

/** Opens a connection, sends the text, and waits for the answer if one is expected. */
function hold(text: string, answer: RegExp | undefined): Promise<void> {
  const socket = connect(scene.port, '127.0.0.1');
  held.push(socket);
  socket.on('error', () => {});
  return new Promise((resolve) => {
    let output = '';
    socket.on('data', (data) => {
      if (output.length < 100) output += data;
      if (answer?.test(output)) resolve();
    });
    socket.once('close', () => resolve());
    socket.once('connect', () => {
      socket.write(text);
      // Unread data stays with its sender; the amount shows within that time.
      if (!answer) setTimeout(resolve, HOLDING);
    });
  });
}

/** Returns the peak of the process's memory during the work. */
async function peak(work: () => Promise<unknown>): Promise<number> {
  const { pid } = scene.fleet.edges[0]!;
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, residentMegabytes(pid) ?? 0);
  }, 20);
  await work().finally(() => clearInterval(timer));
  return most;
}

/**
 * Sends complete requests one after the other until the work is done, and three more. @returns the status of
 * each
 */
async function measureDuring(work: Promise<unknown>): Promise<{ during: number[]; after: number[] }> {
  let done = false;
  void work.finally(() => {
    done = true;
  });
  const during: number[] = [];
  do during.push(await good());
  while (!done);
  await work;
  // All connections are open now, and the machine has recovered from the burst.
  await waitUntil(async () => (await good()) === 201, { what: 'a good client to be served' });
  return { during, after: [await good(), await good(), await good()] };
}

async function expectBounded(
  texts: string[],
  answer: RegExp | undefined,
  { growth, over = base }: { growth: number; over?: number },
): Promise<void> {
  let statuses: { during: number[]; after: number[] } | undefined;
  await longestStall();
  const most = await peak(async () => {
    statuses = await measureDuring(Promise.all(texts.map((text) => hold(text, answer))));
  });
  const stall = await longestStall();
  process.stderr.write(
    `${texts.length} held: the event loop stood for ${stall} ms, ${Math.round(most - over)} MB more, at most\n`,
  );
  const { during, after } = statuses!;
  // While thousands of connections arrive, a process may answer that it is busy, but it does not hang.
  for (const status of during) expect([201, 503]).toContain(status);
  expect(after).toEqual([201, 201, 201]);
  expect(most - over).toBeLessThan(growth);
}

describe('G5: with any number of held connections, memory is bounded and clients are served, with', () => {
  test.for(cases)('%s', ([_, count, head, rest, answer]) =>
    expectBounded(
      Array.from({ length: count }, () => `${head()}\r\nHost: a\r\n\r\n${rest}`),
      answer,
      { growth: MAX_GROWTH },
    ),
  );

  test('heads of the maximum size that do not end', () =>
    expectBounded(
      Array(2 * MANY).fill(`GET /subscription/status/get?external_id=${'x'.repeat(180_000)}`),
      undefined,
      { growth: MAX_BURST, over: residentMegabytes(scene.fleet.edges[0]!.pid)! },
    ));
});
