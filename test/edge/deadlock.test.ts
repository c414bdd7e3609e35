import { expect, test } from 'vitest';
import { isUnavailable } from '../../src/edge/unavailable.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { createDatabaseOfOne, waitUntil } from '../setup/fixtures.ts';

type Ask = (statement: string) => Promise<unknown>;

/** Takes a lock that ends with its transaction. */
const lock = (number: number) => `select pg_advisory_xact_lock(${number})::text`;

test.each(['of the pool', 'of Prisma'])(
  'the victim of a deadlock gets a 503 instead of an error: %s',
  async (of) => {
    const { url } = await createDatabaseOfOne();
    const { pool, prisma, stop } = openDatabase(url, 3);
    const inVictim = (work: (send: Ask) => Promise<void>): Promise<unknown> =>
      of === 'of Prisma'
        ? prisma.$transaction((tx) => work((statement) => tx.$queryRawUnsafe(statement)))
        : inTransaction(pool, (tx) => work((statement) => tx.query(statement)));
    const other = await pool.connect();
    await other.query(`begin; set local deadlock_timeout = '1min'; ${lock(1)}`);
    let crossing: Promise<unknown> = Promise.resolve();
    const victim = inVictim(async (request) => {
      await request("set local deadlock_timeout = '50ms'");
      await request(lock(2));
      crossing = other.query(lock(2));
      const waiting = "select from pg_locks where locktype = 'advisory' and not granted";
      await waitUntil(async () => (await pool.query(waiting)).rowCount === 1, { what: 'the other to wait' });
      await request(lock(1));
    });
    const error = await victim.catch((failure: unknown) => failure);
    expect(String(error)).toMatch(/deadlock/);
    expect(isUnavailable(error)).toBe(true);
    await crossing;
    await other.query('commit');
    other.release();
    await stop();
  },
);
