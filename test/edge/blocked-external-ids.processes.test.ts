import { beforeAll, describe, expect, test } from 'vitest';
import { openDatabase } from '../../src/store/open-database.ts';
import { type PenstockOn, penstockOn } from '../admin/penstock.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { startProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';

const body = {
  attributes: [{ external_id: 'dummy' }, { external_id: 'ada' }],
  events: [{ external_id: 'dummy', name: 'seen', time: '2026-01-31T12:00:00Z' }],
};
const accepted = { attributes_processed: 2, events_processed: 1, message: 'success' };
const type = 'provided external_id is blacklisted and disallowed';
const refused = {
  attributes_processed: 1,
  message: 'success',
  errors: [
    { type, input_array: 'attributes', index: 0 },
    { type, input_array: 'events', index: 0 },
  ],
};

/** Milliseconds. A command takes effect within KEY_CACHE_MS, by default 2000; the rest allows for a busy machine. */
const WITHIN = 5000;

let on: PenstockOn;
let edges: number[];
let shop: string;
let school: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  const database = openDatabase(url, 1);
  shop = (await createWorkspace(database.pool, 'shop')).key;
  school = (await createWorkspace(database.pool, 'school')).key;
  await database.stop();
  edges = await Promise.all([startEdge(url), startEdge(url)]);
});

async function startEdge(url: string): Promise<number> {
  const port = await leasePort();
  startProcess('dist/src/web.js', { DATABASE_URL: url, PORT: String(port), LOG_LEVEL: 'warn' });
  const ready = () => fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok);
  await waitUntil(ready, { what: 'the edge to be ready' });
  return port;
}

async function track(port: number, key: string, sent: object = body) {
  const response = await fetch(`http://127.0.0.1:${port}/users/track`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(sent),
  });
  return { status: response.status, body: await response.json() };
}

/** Asks each web process until it returns the wanted answer. Until then only the earlier answer is allowed. */
async function expectSoon(wanted: object, before: object): Promise<void> {
  for (const port of edges) {
    const arrived = async () => {
      const answer = await track(port, shop);
      expect(answer.status).toBe(201);
      expect([before, wanted]).toContainEqual(answer.body);
      return JSON.stringify(answer.body) === JSON.stringify(wanted);
    };
    await waitUntil(arrived, { what: `the edge on ${port} to know`, deadline: WITHIN });
  }
}

describe('an external id that is blocked by a command', () => {
  test('is refused by every web process within seconds, until it is unblocked', async () => {
    for (const port of edges) expect(await track(port, shop)).toEqual({ status: 201, body: accepted });

    await on.json('users block --workspace shop --external-id dummy');
    await expectSoon(refused, accepted);
    for (const port of edges) {
      expect(await track(port, school), 'of another workspace').toEqual({ status: 201, body: accepted });
      expect(await track(port, shop, { events: body.events }), 'alone').toEqual({
        status: 400,
        body: {
          message: "Valid data must be provided in the 'attributes', 'events', or 'purchases' fields.",
          errors: [{ type, input_array: 'events', index: 0 }],
          code: 'nothing_valid',
          detail: expect.any(String),
        },
      });
    }

    await on.json('users unblock --workspace shop --external-id dummy');
    await expectSoon(accepted, refused);
  });
});
