import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool, type Pool } from '../../src/store/database.ts';
import { type AdvisoryLock, withAdvisoryLock } from '../../src/store/leases.ts';
import { createDatabaseOfOne, waitUntil } from '../setup/fixtures.ts';

const lock: AdvisoryLock = { number: '$1::bigint', values: [42], excludes: 'others' };

/** Connection pools of two processes. */
let one: Pool;
let another: Pool;

beforeAll(async () => {
  const { url } = await createDatabaseOfOne();
  [one, another] = [openPool(url, 1), openPool(url, 1)];
});
afterAll(() => Promise.all([one.end(), another.end()]));

/** Checks whether the lock is free. The server releases it shortly after the session ends. */
const isFree = async (pool: Pool, wanted: AdvisoryLock) =>
  (await withAdvisoryLock(pool, wanted, async () => true)) === true;

/** Shorter than the time after which the pool closes an idle connection. */
const FREE = { what: 'the lock', deadline: 5000 };

const loseSession = () =>
  another.query(`
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`);

test('a second process skips the work until the first one has ended, also with an error', async () => {
  const failing = withAdvisoryLock(one, lock, async () => {
    expect(await withAdvisoryLock(another, lock, async () => 'second')).toBeUndefined();
    throw new Error('the first has failed');
  });
  await expect(failing).rejects.toThrow('the first has failed');
  expect(await withAdvisoryLock(another, lock, async () => 'third')).toBe('third');
});

test('a process that loses its session gets an abort signal, and another one can start', async () => {
  await withAdvisoryLock(one, lock, async (lease) => {
    await lease.confirm();
    expect(lease.signal.aborted).toBe(false);
    await loseSession();
    await expect(lease.confirm()).rejects.toThrow('the session that keeps away others was lost');
    expect(lease.signal.aborted).toBe(true);
    await waitUntil(() => isFree(another, lock), FREE);
  });
  expect(await isFree(one, lock)).toBe(true);
});

test('the lock is free as soon as the work ends, though its connection stays in the pool', async () => {
  await withAdvisoryLock(one, lock, async () => {});
  expect(one.idleCount).toBe(1);
  expect(await isFree(another, lock)).toBe(true);
});
