import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { summarizeRetention } from '../../src/store/archive-files.ts';
import { readUsageToday } from '../../src/store/counters.ts';
import { findApiKeys } from '../../src/store/credentials.ts';
import type { Database } from '../../src/store/database.ts';
import { countDeadLetters, listDeadLetters } from '../../src/store/dead-letter-actions.ts';
import { distribute } from '../../src/store/distribute.ts';
import { readSequenceValues } from '../../src/store/distributed.ts';
import { eraseHistories } from '../../src/store/erasures.ts';
import { forgetKeys } from '../../src/store/idempotency-keys.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { listPartitions, ownersIn } from '../../src/store/partitions.ts';
import { searchUsers } from '../../src/store/profile-search.ts';
import { leaseExports } from '../../src/store/segment-export-leases.ts';
import { leaseDestinations } from '../../src/store/stream-leases.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { refused } from './distributed/refused.ts';
import { sendEverything } from './plans/everything.ts';
import { fill } from './plans/fill.ts';
import type { Sent } from './plans/record.ts';

/** From the sixth execution on, Postgres may use a generic plan for a prepared statement. */
const TIMES = 7;

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let citus: Database;
  let sent: Sent[];

  beforeAll(async () => {
    sent = await everyStatement();
    const { url } = await createCitusDatabase();
    await migrate(url);
    citus = openDatabase(url, 1);
    await distribute(citus.pool);
  });
  afterAll(() => citus.stop());

  test('plans and runs every statement of the store, except for the listed exceptions', {
    timeout: 600_000,
  }, async () => {
    const collected = new Map<string, string>();
    for (const one of sent) {
      const why = await refusal(citus, one);
      if (why) collected.set(one.site, why);
    }
    expect([...collected].filter(([site]) => !(site in refused))).toEqual([]);
    expect(Object.keys(refused).filter((site) => !collected.has(site))).toEqual([]);
  });

  test('runs the statements that replace the exceptions', async () => {
    const { pool } = citus;
    const lease = { milliseconds: 1000, limit: 3 };
    await readUsageToday(pool);
    await findApiKeys(pool, [Buffer.from('key')]);
    await eraseHistories(pool, 10);
    await forgetKeys(pool);
    for (const state of ['open', 'ready'] as const) await leaseExports(pool, state, lease);
    for (const gathers of [true, false])
      await leaseDestinations(pool, { milliseconds: 1000, limit: 3, gathers });
    // A search for one kind of identifier excludes the others, so the statement names no shard.
    for (const search of [{ prefix: 'us' }, { aliasName: 'name' }, { email: 'a@x.com' }, { phone: '+1' }])
      expect(await searchUsers(pool, [newId(), newId()], { search, limit: 10 })).toEqual([]);
    for (const which of [{}, { workspaceId: newId() }, { states: ['waiting', 'replaying'] }]) {
      expect(await listDeadLetters(pool, which, { limit: 10 })).toEqual([]);
      expect(await countDeadLetters(pool, which)).toBe(0);
    }
    const [month] = await listPartitions(pool);
    await ownersIn(pool, month!);
    await summarizeRetention(pool, { limit: 10 });
  });

  test('the partition of a new month is colocated with the others, on all nodes', async () => {
    await citus.pool.query("select ensure_month_partitions('2040-01-15', 0)");
    const { rows } = await citus.pool.query(`
      select count(*)::integer as shards, count(distinct nodeport)::integer as nodes,
        count(distinct colocation_id)::integer as groups
      from citus_shards
      where table_name in ('events'::regclass, 'events_2040_01'::regclass)`);
    const [{ shards, nodes, groups }] = rows;
    expect({ nodes: nodes > 1, groups }).toEqual({ nodes: true, groups: 1 });
    expect(shards).toBeGreaterThan(2);
  });
});

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});

/** Returns each statement once, as the functions of the store send it to one Postgres. */
async function everyStatement(): Promise<Sent[]> {
  const database = openDatabase((await createDatabaseOfOne()).url, 1);
  const filled = await fill(database.pool);
  const tx = await database.pool.connect();
  try {
    await tx.query('begin');
    const { sent } = await sendEverything(tx, filled);
    return [...new Map(sent.map((one) => [one.text, one])).values()];
  } finally {
    await tx.query('rollback');
    tx.release();
    await database.stop();
  }
}

/** @returns the error; undefined if the statement succeeds, however often it is sent */
async function refusal({ pool }: Database, { text, values }: Sent): Promise<string | undefined> {
  const tx = await pool.connect();
  try {
    for (let time = 1; time <= TIMES; time++) {
      await tx.query('begin');
      await readSequenceValues(tx);
      await tx.query({ name: 'statement', text, values });
      await tx.query('rollback');
    }
  } catch (error) {
    await tx.query('rollback');
    return (error as Error).message;
  } finally {
    await tx.query('deallocate all').catch(() => {});
    tx.release(true);
  }
}
