import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { watchDependencies } from '../../src/processes/dependencies.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { holdSession } from '../../src/store/connections.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { withAdvisoryLock } from '../../src/store/leases.ts';
import {
  knownPooling,
  type SessionSettings,
  UnsupportedPooling,
  withPooling,
} from '../../src/store/pooling.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { createDatabaseOfOne, waitUntil } from '../setup/fixtures.ts';
import { keepsPreparedStatements, startPgBouncer } from '../setup/pgbouncer.ts';

let direct: string;
const through = { session: '', transaction: '' };
beforeAll(async () => {
  ({ url: direct } = await createDatabaseOfOne());
  through.session = (await startPgBouncer(direct, { mode: 'session' })).url;
  through.transaction = (await startPgBouncer(direct, { mode: 'transaction' })).url;
});

const opened: Pool[] = [];
function open(url: string, session: SessionSettings = {}): Pool {
  const pool = openPool(url, 4, { session });
  opened.push(pool);
  return pool;
}
afterEach(async () => {
  await Promise.all(opened.splice(0).map((pool) => pool.end()));
});

const timeoutOf = async (database: Pick<Pool, 'query'>) =>
  (await database.query('show statement_timeout')).rows[0].statement_timeout;

test.each([
  ['none', () => direct],
  ['session', () => through.session],
  ['transaction', () => through.transaction],
] as const)('a pool detects the pooling mode of its address: %s', async (mode, url) => {
  const pool = open(url());
  await pool.query('select');
  const keepsNames = mode !== 'transaction' || (await keepsPreparedStatements());
  expect(knownPooling(url())).toEqual({ mode, keepsNames });
});

test('a pool detects transaction mode with a single server connection as well', async () => {
  const { url } = await startPgBouncer(direct, { mode: 'transaction', poolSize: 1 });
  await open(url).query('select');
  expect(knownPooling(url)).toMatchObject({ mode: 'transaction' });
});

test('a pool rejects statement mode in one sentence that names the remedy', async () => {
  const { url } = await startPgBouncer(direct, { mode: 'statement' });
  const refused = open(url).query('select');
  await expect(refused).rejects.toThrow(UnsupportedPooling);
  await expect(refused).rejects.toThrow(/statement mode.*: set pool_mode to transaction or session/);
});

test('DATABASE_POOLING overrides the mode that a pool would detect', async () => {
  const url = withPooling(direct, 'transaction');
  const pool = open(url, { statement_timeout: 1234 });
  expect(await timeoutOf(pool)).toBe('1234ms');
  expect(knownPooling(url)).toEqual({ mode: 'transaction', keepsNames: false });
});

describe.each(['session', 'transaction'] as const)('through PgBouncer in %s mode', (mode) => {
  test('the settings of a pool hold for each statement, in and outside of transactions', async () => {
    const pool = open(through[mode], { statement_timeout: 1234 });
    expect(await Promise.all(Array.from({ length: 8 }, () => timeoutOf(pool)))).toEqual(
      Array(8).fill('1234ms'),
    );
    expect(await inTransaction(pool, timeoutOf)).toBe('1234ms');
    expect(await inTransaction(pool, timeoutOf, { statement: 77, lock: 55 })).toBe('77ms');
    const stopped = pool.query('select pg_sleep(10)');
    await expect(stopped).rejects.toMatchObject({ code: '57014' });
  });

  test('named statements work while connections change servers', async () => {
    const [one, another] = [open(through[mode]), open(through[mode])];
    const runQuery = (pool: Pool, value: number) =>
      pool.query<{ value: number }>({
        name: 'named',
        text: 'select $1::integer as value, pg_sleep(0.01)',
        values: [value],
      });
    for (let round = 0; round < 10; round++) {
      const answers = await Promise.all(
        [1, 2, 3, 4, 5, 6, 7, 8].map((value) => runQuery(value % 2 ? one : another, value)),
      );
      expect(answers.map(({ rows }) => rows[0]!.value)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    }
  });

  test('one process at a time holds an advisory lock, also while others use the servers', async () => {
    const lock = { number: '$1::bigint', values: [mode.length], excludes: 'others' };
    const [one, another] = [open(through[mode]), open(direct)];
    const done = await withAdvisoryLock(one, lock, async (lease) => {
      await Promise.all(Array.from({ length: 6 }, () => one.query('select pg_sleep(0.01)')));
      await lease.confirm();
      return withAdvisoryLock(another, lock, async () => 'second');
    });
    expect(done).toBeUndefined();
    expect(await withAdvisoryLock(another, lock, async () => 'third')).toBe('third');
  });
});

test('a setting of a pool stays out of the transactions of other programs', async () => {
  await inTransaction(open(through.transaction, { statement_timeout: 1234 }), timeoutOf);
  const others = open(through.transaction);
  expect(new Set(await Promise.all(Array.from({ length: 8 }, () => timeoutOf(others))))).toEqual(
    new Set(['0']),
  );
});

test('a statement outside of a transaction takes no effect when it fails', async () => {
  const pool = open(through.transaction, { statement_timeout: 1234 });
  await pool.query('create table written (one integer primary key)');
  await pool.query('insert into written values (1)');
  await expect(pool.query('insert into written values (2), (1)')).rejects.toMatchObject({ code: '23505' });
  expect((await pool.query('select one from written')).rows).toEqual([{ one: 1 }]);
});

test('a statement over a table with a new column works from the second attempt on', async () => {
  const pool = open(through.transaction);
  await pool.query('create table shapes (one integer)');
  const query = () => pool.query({ name: 'shapes', text: 'select * from shapes' });
  await Promise.all(Array.from({ length: 8 }, query));
  await pool.query('alter table shapes add column two integer');
  // A pooler that keeps prepared statements may hold outdated ones; only the first failed attempt may use
  // them.
  await query().catch(() => {});
  const answers = await Promise.all(Array.from({ length: 8 }, query));
  for (const { fields } of answers) expect(fields).toHaveLength(2);
});

test('a pool detects the mode again when a different server session answers', async () => {
  const settings = (await keepsPreparedStatements()) ? { max_prepared_statements: '0' } : {};
  const { url } = await startPgBouncer(direct, { mode: 'transaction', settings });
  const other = open(url);
  await other.query('select');
  // Sets the state of a pooler that was added after the first connection.
  Object.assign(knownPooling(url)!, { mode: 'none', keepsNames: true });
  const pool = open(url);
  const execute = () => pool.query({ name: 'moved', text: 'select 1 as one' });
  await execute();
  await inTransaction(other, async (tx) => {
    await tx.query('select');
    await expect(execute()).rejects.toMatchObject({ code: '26000' });
  });
  await execute();
  expect(knownPooling(url)).toMatchObject({ mode: 'transaction' });
});

describe('operations that need a session of their own', () => {
  const remedy = /connection pooler in transaction mode: set DATABASE_DIRECT_URL/;

  test('a migration through transaction mode fails with one sentence that names the remedy', async () => {
    await expect(migrate(through.transaction)).rejects.toThrow(remedy);
    expect(await migrate(through.session)).toEqual([]);
  });

  test('a held session reports the rejection once and does not retry', async () => {
    const logged: unknown[] = [];
    const stop = holdSession({
      ...{ databaseUrl: through.transaction, what: 'a test', beat: 100, retry: 1 },
      hold: async () => {},
      report: (error) => logged.push(error),
    });
    await waitUntil(() => logged.length > 0, { what: 'the report' });
    await stop();
    expect(logged).toHaveLength(1);
    expect(String(logged[0])).toMatch(remedy);
  });

  test('the queue in Postgres works through session mode and by the direct address', async () => {
    const settings = { QUEUE: 'postgres', DATABASE_URL: through.session };
    const queues = [
      connectProducer(readConfig(settings), through.session),
      connectProducer(readConfig({ ...settings, DATABASE_DIRECT_URL: direct }), through.transaction),
    ];
    for (const queue of queues) {
      await queue.ping(5000);
      await queue.stop();
    }
  });

  test('a process with the queue in Postgres exits in transaction mode and names the reason', async () => {
    const config = readConfig({ QUEUE: 'postgres', DATABASE_URL: through.transaction });
    const log = createLog('test', 'silent');
    const fatal: string[] = [];
    log.fatal = (line: unknown) => void fatal.push(String(line));
    const connection = connectProducer(config, through.transaction);
    let ended = false;
    const exit = () => {
      ended = true;
    };
    const dependencies = watchDependencies({ pool: open(through.transaction), connection, log, exit });
    await waitUntil(() => ended, { what: 'the process to be ended' });
    await dependencies.stop();
    await connection.stop();
    expect(fatal[0]).toMatch(/^the queue in Postgres needs a session/);
    expect(fatal[0]).toMatch(remedy);
  });
});
