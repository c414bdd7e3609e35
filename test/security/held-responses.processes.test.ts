import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newProfileId } from '../../src/profile/identifier.ts';
import { residentMegabytes } from '../../tools/resident-megabytes.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { liftLimits } from '../setup/examples.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** Limit of the web process's growth in megabytes, however much is not read. */
const MAX_GROWTH = 64;

/** Users of one export, and bytes of the attributes of each. */
const USERS = 50;
const BYTES_OF_USER = 230_000;

let fleet: Fleet;
let base: number;
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 0, env: { LOG_LEVEL: 'error' } });
  await liftLimits(fleet.pool, fleet.workspace.id);
  await addLargeUsers();
  for (let warm = 0; warm < 20; warm++) await (await get('/openapi.json')).text();
  for (let warm = 0; warm < 3; warm++) expect((await exportIds()).status).toBe(201);
  base = residentMegabytes(fleet.edges[0]!.pid)!;
});
afterAll(() => fleet?.stop());

const held: Socket[] = [];
afterEach(() => {
  for (const socket of held.splice(0)) socket.destroy();
});

const port = () => fleet.edges[0]!.port;
const get = (path: string) => fetch(`http://127.0.0.1:${port()}${path}`);

async function addLargeUsers(): Promise<void> {
  const attributes = JSON.stringify({ text: 'x'.repeat(BYTES_OF_USER) });
  for (let index = 0; index < USERS; index++)
    await fleet.pool.query(
      `insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
       values ($1, $2, $3, $4, now(), now())`,
      [fleet.workspace.id, newProfileId(Date.now()), `large-${index}`, attributes],
    );
}

const body = JSON.stringify({ external_ids: Array.from({ length: USERS }, (_, index) => `large-${index}`) });
const exportHeaders = () => ({
  authorization: `Bearer ${fleet.workspace.key}`,
  'content-type': 'application/json',
});

async function exportIds() {
  const answer = await fetch(`http://127.0.0.1:${port()}/users/export/ids`, {
    method: 'POST',
    headers: exportHeaders(),
    body: body,
  });
  const text = await answer.text();
  return { status: answer.status, body: JSON.parse(text) };
}

/** Opens a connection and writes a text without reading the response. */
async function holdUnread(text: string): Promise<Socket> {
  const socket = connect(port(), '127.0.0.1');
  socket.pause();
  socket.on('error', () => {});
  held.push(socket);
  await once(socket, 'connect');
  socket.write(text);
  return socket;
}

const rawExport = () =>
  `POST /users/export/ids HTTP/1.1\r\nHost: a\r\n${Object.entries(exportHeaders())
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}Content-Length: ${body.length}\r\n\r\n${body}`;

/**
 * Returns the processor time of the main thread of web in milliseconds; wall time would include other
 * processes.
 */
function workedBy(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
}

/** Expects web to grow only a little, and to answer others, during the work and for some seconds after it. */
async function expectBounded(work: () => Promise<unknown>): Promise<void> {
  const { pid } = fleet.edges[0]!;
  let most = 0;
  let longest = 0;
  let isOver = false;
  const watching = (async () => {
    while (!isOver) {
      const worked = workedBy(pid);
      expect((await get('/healthz')).status).toBe(200);
      longest = Math.max(longest, workedBy(pid) - worked);
      most = Math.max(most, residentMegabytes(pid)!);
    }
  })();
  await work();
  const from = performance.now();
  await waitUntil(() => performance.now() - from > 3000, { what: 'three seconds', deadline: 10_000 });
  isOver = true;
  await watching;
  process.stderr.write(
    `web grew by ${Math.round(most - base)} MB, and worked ${Math.round(longest)} ms before it answered others, at most\n`,
  );
  expect(most - base).toBeLessThan(MAX_GROWTH);
  expect(longest).toBeLessThan(1000);
}

const openApi = 'GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n';

describe("G5: responses that are not read use at most 64 MB of web's memory, with", () => {
  test('1,500 requests for /openapi.json on one connection', () =>
    expectBounded(() => holdUnread(openApi.repeat(1500))));

  test('14 requests for /openapi.json on each of 600 connections', () =>
    expectBounded(() => Promise.all(Array.from({ length: 600 }, () => holdUnread(openApi.repeat(14))))));

  test('14 requests for /metrics on each of 200 connections', () =>
    expectBounded(() =>
      Promise.all(
        Array.from({ length: 200 }, () => holdUnread(openApi.replace('openapi.json', 'metrics').repeat(14))),
      ),
    ));

  test('40 exports of 50 large users, one after the other', async () => {
    const statuses: string[] = [];
    await expectBounded(async () => {
      for (let index = 0; index < 40; index++) {
        const socket = await holdUnread(rawExport());
        const [chunk] = (await once(socket.resume(), 'data')) as [Buffer];
        socket.pause();
        statuses.push(chunk.toString('latin1', 9, 12));
      }
    });
    expect(statuses[0]).toBe('201');
    expect(statuses.at(-1)).toBe('503');
  });
});

test('G5: 100 idle connections, each after a body of 4 MB, use at most 64 MB', async () => {
  const large = JSON.stringify({ filler: 'x'.repeat(4_000_000) });
  const head = `POST /users/track HTTP/1.1\r\nHost: a\r\n${Object.entries(exportHeaders())
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}Content-Length: ${large.length}\r\n\r\n`;
  for (let index = 0; index < 100; index++) {
    const socket = await holdUnread(head + large);
    const [chunk] = (await once(socket.resume(), 'data')) as [Buffer];
    expect(chunk.toString('latin1', 9, 12)).toBe('400');
  }
  const growth = () => Math.round(residentMegabytes(fleet.edges[0]!.pid)! - base);
  await waitUntil(() => growth() < MAX_GROWTH, { what: 'the memory', explain: async () => `${growth()} MB` });
  expect(held.filter((socket) => !socket.destroyed)).toHaveLength(100);
});
