import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { signLink } from '../../src/preferences/link.ts';
import { residentMegabytes } from '../../tools/resident-megabytes.ts';
import { createScene, openCenter, type Scene, tokenOf } from '../preferences/scene.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** Connections that are held; each process of the test needs as many files. */
const MANY = Number(process.env.HELD_CONNECTIONS ?? 2000);

/** Bytes of a held body: as many as none has to wait for. */
const HELD = 131_000;

/** Milliseconds for which those are watched who get no answer. */
const HOLDING = 1500;

/**
 * Megabytes that the web process may grow by: all budgets several times over, and some KB for each connection. Of the same
 * connections Node 24 takes twice as much as Node 20.
 */
const MOST_GROWTH = 300;

/**
 * By itself, over what the process has by then: what has come before anything can be cut off is on top, a chunk of 64 KB of
 * each of thousands.
 */
const MOST_BURST = 1.5 * MOST_GROWTH;

let scene: Scene;
let signed: string;
let base: number;
beforeAll(async () => {
  scene = await createScene('redis', {
    MAX_SMALL_BODIES_BYTES: String(16 * 1024 * 1024),
    // Each try has its answers; nobody else is measured.
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

/** A client that sends what it says. */
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
/** Of a workspace that there is, whose key is known. */
const forgedHere = () => `${signed.slice(0, -1)}${signed.endsWith('A') ? 'B' : 'A'}`;
const key = () => `Authorization: Bearer ${scene.workspace.key}`;

/** What a stranger holds open, and how each connection is answered. */
const cases: [what: string, count: number, head: () => string, rest: string, answer: RegExp | undefined][] = [
  [
    'forms to links that nobody signed',
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
    'bodies in chunks of one byte, to what reads none',
    150,
    () => 'GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked',
    chunks,
    /^HTTP\/1.1 200 /,
  ],
];

/** Milliseconds that the event loop of the web process stood at most, since it was asked last. */
async function longestStall(): Promise<number> {
  const page = await (await fetch(`http://127.0.0.1:${scene.port}/metrics`)).text();
  return Math.round(1000 * Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(page)?.[1]));
}

/** Opens a connection, sends this, and waits for an answer, if there is to be one. */
function hold(text: string, answer: RegExp | undefined): Promise<void> {
  const socket = connect(scene.port, '127.0.0.1');
  held.push(socket);
  socket.on('error', () => {});
  return new Promise((resolve) => {
    let told = '';
    socket.on('data', (data) => {
      if (told.length < 100) told += data;
      if (answer?.test(told)) resolve();
    });
    socket.once('close', () => resolve());
    socket.once('connect', () => {
      socket.write(text);
      // What is not read stays with its sender; how much is, shows within that time.
      if (!answer) setTimeout(resolve, HOLDING);
    });
  });
}

/** The most that the process has at a time while this goes on. */
async function peak(work: () => Promise<unknown>): Promise<number> {
  const { pid } = scene.fleet.edges[0]!;
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, residentMegabytes(pid) ?? 0);
  }, 20);
  await work().finally(() => clearInterval(timer));
  return most;
}

/** Good clients one after the other until the work is done, and then some. @returns how each was answered */
async function beside(work: Promise<unknown>): Promise<{ during: number[]; after: number[] }> {
  let done = false;
  void work.finally(() => {
    done = true;
  });
  const during: number[] = [];
  do during.push(await good());
  while (!done);
  await work;
  // What is held is there; the machine has got over its coming.
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
    statuses = await beside(Promise.all(texts.map((text) => hold(text, answer))));
  });
  const stall = await longestStall();
  process.stderr.write(
    `${texts.length} held: the event loop stood for ${stall} ms, ${Math.round(most - over)} MB more, at most\n`,
  );
  const { during, after } = statuses!;
  // While thousands come at once a process may say that it is busy; it does not hang.
  for (const status of during) expect([201, 503]).toContain(status);
  expect(after).toEqual([201, 201, 201]);
  expect(most - over).toBeLessThan(growth);
}

describe('G5: however many connections are held, memory is bounded and good clients are answered, beside', () => {
  test.for(cases)('%s', ([_, count, head, rest, answer]) =>
    expectBounded(
      Array.from({ length: count }, () => `${head()}\r\nHost: a\r\n\r\n${rest}`),
      answer,
      { growth: MOST_GROWTH },
    ),
  );

  test('heads of the longest kind that do not end', () =>
    expectBounded(
      Array(2 * MANY).fill(`GET /subscription/status/get?external_id=${'x'.repeat(180_000)}`),
      undefined,
      { growth: MOST_BURST, over: residentMegabytes(scene.fleet.edges[0]!.pid)! },
    ));
});
