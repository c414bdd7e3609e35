import { afterAll, beforeAll, expect, test } from 'vitest';
import { type AdvisoryLock, aloneWith } from '../../src/store/connections.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';

const lock: AdvisoryLock = { number: '$1::bigint', values: [42], keepsAway: 'others' };

let pool: Pool;

beforeAll(async () => {
  pool = openPool((await createDatabaseOfOne()).url, 2);
});
afterAll(() => pool.end());

const loseSession = () =>
  pool.query(`
    select pg_terminate_backend(pid) from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`);

test('whoever comes second does nothing, until the first has ended, in whatever way', async () => {
  const failing = aloneWith(pool, lock, async () => {
    expect(await aloneWith(pool, lock, async () => 'second')).toBeUndefined();
    throw new Error('the first has failed');
  });
  await expect(failing).rejects.toThrow('the first has failed');
  expect(await aloneWith(pool, lock, async () => 'third')).toBe('third');
});

test('who has lost the session hears of it, others may begin, and nobody gets its connection', async () => {
  const said = await aloneWith(pool, lock, async ({ signal, confirm }) => {
    await confirm();
    expect(signal.aborted).toBe(false);
    await loseSession();
    await expect(confirm()).rejects.toThrow('the session that keeps away others was lost');
    expect(signal.aborted).toBe(true);
    return aloneWith(pool, lock, async () => 'another');
  });
  expect(said).toBe('another');
  expect(pool.totalCount).toBe(1);
  expect(await aloneWith(pool, lock, async () => 'next')).toBe('next');
});
