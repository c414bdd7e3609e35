import { readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readEmbeddedUrl } from '../../src/embedded/address.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { endStarted, KEY, output, settingsWithCluster, startAndWait } from '../setup/npm-start.ts';
import { createClient } from './keep-alive-client.ts';

const KILLS = 3;
const CLIENTS = 4;
const USERS = 10;
const TIME = '2026-01-02T03:04:05Z';

/** Status of the answer to each request, by its number; 0 if there was no answer. */
const answers = new Map<number, number>();
/** Rows per stored event by request number, and the sum of the counted increments. */
let rows: Map<number, number>;
let points: number;
let started: Awaited<ReturnType<typeof startAndWait>>;

beforeAll(async () => {
  const env = await settingsWithCluster();
  started = await startAndWait(env);
  const key = KEY.exec(output(started))![0];
  const postmaster = path.join(env.DATA_DIR, 'postgres/postmaster.pid');

  let requests = 0;
  let sending = true;
  const send = async () => {
    const client = createClient(key);
    while (sending) {
      const number = requests++;
      const external_id = `user-${number % USERS}`;
      const body = {
        attributes: [{ external_id, points: { inc: 1 } }],
        events: [{ external_id, name: 'sent', time: TIME, properties: { number } }],
      };
      const { status } = await client.post(Number(env.PORT), '/users/track', body);
      answers.set(number, status ?? 0);
    }
    client.close();
  };
  const clients = Array.from({ length: CLIENTS }, send);
  const accepted = () => [...answers.values()].filter((status) => status === 201).length;
  for (let kills = 0; kills < KILLS; kills++) {
    const before = accepted();
    await waitUntil(() => accepted() >= before + 100, { what: 'more to be accepted' });
    process.kill(Number(readFileSync(postmaster, 'utf8').split('\n')[0]), 'SIGKILL');
    await waitUntil(
      () => started.log.filter(({ msg }) => /answered again$/.test(String(msg))).length > kills,
      {
        what: 'the next server',
      },
    );
  }
  const before = accepted();
  await waitUntil(() => accepted() >= before + 100, { what: 'more to be accepted' });
  sending = false;
  await Promise.all(clients);

  const pool = new pg.Pool({ connectionString: readEmbeddedUrl(env.DATA_DIR)!, max: 1 });
  const read = async () => {
    const result = await pool.query<{ number: number; count: number }>(
      `select (properties ->> 'number')::integer as number, count(*)::integer as count from events group by 1`,
    );
    rows = new Map(result.rows.map(({ number, count }) => [number, count]));
    const sums = await pool.query(
      `select sum((custom_attributes ->> 'points')::integer)::integer as points from profiles`,
    );
    points = sums.rows[0].points;
  };
  const isThere = (number: number) => answers.get(number) !== 201 || rows.has(number);
  await waitUntil(
    async () => {
      await read();
      return [...answers.keys()].every(isThere);
    },
    { what: 'what was acknowledged' },
  ).catch(() => {
    // The test of I1 names the lost events.
  });
  await pool.end();
});
afterAll(() => endStarted());

test('I1: events acknowledged while the embedded Postgres was killed are stored', () => {
  const acknowledged = [...answers].filter(([, status]) => status === 201).map(([number]) => number);
  expect(acknowledged.length).toBeGreaterThan((KILLS + 1) * 100);
  expect(acknowledged.filter((number) => !rows.has(number))).toEqual([]);
});

test('I2: each event is stored once and counted once', () => {
  expect([...rows].filter(([, count]) => count !== 1)).toEqual([]);
  expect(points).toBe(rows.size);
});

test('G5: a request that could not be stored is answered with 503', () => {
  expect([...new Set(answers.values())].sort()).toEqual([201, 503]);
});

test('npm start restarts Postgres and logs each restart, and its processes keep running', () => {
  const messages = started.log.map(({ msg }) => String(msg));
  expect(
    messages.filter((msg) => msg === 'embedded Postgres exited unexpectedly; restarting').length,
  ).toBeGreaterThanOrEqual(KILLS);
  expect(messages).not.toContain('process exited unexpectedly; restarting');
});
