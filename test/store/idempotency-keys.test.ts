import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool } from '../../src/store/database.ts';
import {
  findKey,
  forgetKeys,
  insertKeyIfAbsent,
  type Key,
  recordAnswer,
  takeLease,
} from '../../src/store/idempotency-keys.ts';
import { createDatabase } from '../setup/fixtures.ts';

let pool: pg.Pool;
beforeAll(async () => {
  const { url } = await createDatabase();
  // Opens the pool as web and workers do, so that it detects whether the tables are distributed.
  pool = openPool(url, 5);
});
afterAll(() => pool?.end());

const newKey = (): Key => ({
  ownerId: uuidv7(),
  operation: 'users.track',
  hash: randomBytes(32),
  fingerprint: randomBytes(32),
});
const ANSWER = { status: 201, body: { message: 'success', odd: 'a\u0000b\ud800' } };

test('one of many simultaneous requests stores the key, and all others find its entry', async () => {
  const key = newKey();
  const outbox = { entries: [{ lane: 0 }], answer: ANSWER };
  const ids = Array.from({ length: 20 }, () => uuidv7());
  const inserted = await Promise.all(
    ids.map((requestId) => insertKeyIfAbsent(pool, key, { requestId, outbox, lease: 60_000 })),
  );
  const winner = ids[inserted.findIndex(Boolean)]!;
  expect(inserted.filter(Boolean)).toHaveLength(1);
  expect(await findKey(pool, key)).toEqual({
    createdAt: expect.any(String),
    fingerprint: key.fingerprint,
    requestId: winner,
    leased: true,
    outbox,
  });
});

test('the first of several answers is kept, and the outbox is emptied', async () => {
  const key = newKey();
  const requestId = uuidv7();
  await insertKeyIfAbsent(pool, key, { requestId, lease: 60_000 });
  const late = { status: 500, body: undefined };
  const recorded = [
    await recordAnswer(pool, key, { requestId, ...ANSWER, headers: { ETag: 'W/"1"' } }),
    await recordAnswer(pool, key, { requestId, ...late }),
  ];
  expect(recorded).toEqual([true, false]);
  const result = await findKey(pool, key);
  expect(result).toEqual({
    createdAt: expect.any(String),
    fingerprint: key.fingerprint,
    requestId,
    leased: false,
    answer: { ...ANSWER, headers: { ETag: 'W/"1"' } },
  });
});

test('one of several callers takes over an expired lease', async () => {
  const key = newKey();
  const requestId = uuidv7();
  await insertKeyIfAbsent(pool, key, { requestId, lease: 60_000 });
  expect(await takeLease(pool, key, { requestId, lease: 1000 })).toBeUndefined();
  await pool.query('update idempotency_keys set lease_until = now() where request_id = $1', [requestId]);
  const taken = await Promise.all(
    Array.from({ length: 10 }, () => takeLease(pool, key, { requestId, lease: 60_000 })),
  );
  expect(taken.filter(Boolean)).toHaveLength(1);
});

test("deletes any number of the previous day's keys and keeps the others", async () => {
  const key = newKey();
  await insertKeyIfAbsent(pool, key, { requestId: uuidv7(), lease: 60_000 });
  await pool.query(
    `insert into idempotency_keys (owner_id, operation, key_hash, fingerprint, request_id, created_at)
     select gen_random_uuid(), 'users.track', '', '', gen_random_uuid(), now() - interval '24 hours'
       from generate_series(1, 2500)`,
  );
  await forgetKeys(pool);
  const { rows } = await pool.query(
    "select count(*)::integer from idempotency_keys where created_at < now() - interval '23 hours'",
  );
  expect(rows[0].count).toBe(0);
  expect(await findKey(pool, key)).toBeDefined();
});
