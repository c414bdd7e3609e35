import { randomUUID } from 'node:crypto';
import { expect, inject, onTestFinished, test } from 'vitest';
import { openPool } from '../../src/store/database.ts';
import { causeOf, isPostgresUnavailable } from '../../src/store/error-cause.ts';
import { exchangeArrivals, openFences } from '../../src/store/fences.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { startProxy } from '../setup/proxy.ts';

const limits = { statement: 300, lock: 200, silence: 600 };

test.each(['client', 'store'] as const)(
  'a transaction ends with ETIMEDOUT and its connection is closed if packets of the %s vanish',
  async (silent) => {
    const proxy = await startProxy(inject('postgresUrl'));
    const pool = openPool(proxy.url, 1);
    const backend = () =>
      inTransaction(
        pool,
        async (tx) => (await tx.query('select pg_backend_pid() as pid')).rows[0].pid,
        limits,
      );
    const before = await backend();
    proxy.standStill(silent);
    const error = await backend().catch((failure: unknown) => failure);
    expect(error).toMatchObject({ code: 'ETIMEDOUT' });
    expect(causeOf(error)).toBe('infrastructure');
    await proxy.comeBack();
    expect(await backend()).not.toBe(before);
    await pool.end();
  },
);

test('a transaction is not ended while its statements take less time than its limits', async () => {
  const pool = openPool(inject('postgresUrl'), 1);
  const slow = inTransaction(
    pool,
    async (tx) => {
      for (let count = 0; count < 4; count++) await tx.query('select pg_sleep(0.2)');
      return 'committed';
    },
    limits,
  );
  expect(await slow).toBe('committed');
  await pool.end();
});

test('statements about fences fail within 5 s when Postgres stays silent', async () => {
  const proxy = await startProxy(inject('postgresUrl'));
  const pool = openPool(proxy.url, 3);
  const fence = randomUUID();
  // Open the connections before the packets vanish.
  await Promise.all([1, 2].map(() => pool.query('select pg_sleep(0.05)')));
  proxy.standStill('store');
  const results = await Promise.allSettled([
    ...[exchangeArrivals(pool, [{ fence, lanes: [1] }]), openFences(pool, [fence])],
  ]);
  expect(results.map((result) => result.status === 'rejected' && causeOf(result.reason))).toEqual(
    Array(2).fill('infrastructure'),
  );
  await pool.end();
});

test('a Prisma transaction without a free connection counts as an unavailable Postgres', async () => {
  const patience = { connection: 1000 };
  const database = openDatabase(inject('postgresUrl'), 1, { patience });
  const { prisma } = database;
  // The connection is open before the transactions compete for it.
  await prisma.$queryRaw`select 1`;
  const error = await prisma.$transaction(() =>
    prisma.$transaction(async () => {}).catch((failure: unknown) => failure),
  );
  expect(error).toMatchObject({ code: 'P2028' });
  expect([isPostgresUnavailable(error), causeOf(error)]).toEqual([true, 'infrastructure']);
  await database.stop();
});

test('the connections of the client of Prisma have the session settings of the pool', async () => {
  const database = openDatabase(inject('postgresUrl'), 1, { session: { statement_timeout: 4321 } });
  onTestFinished(database.stop);
  await database.pool.query('select');
  const [row] = await database.prisma.$queryRaw<{ statement_timeout: string }[]>`show statement_timeout`;
  expect(row!.statement_timeout).toBe('4321ms');
});
