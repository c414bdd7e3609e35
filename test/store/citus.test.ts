import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Prisma } from '../../src/generated/prisma/client.ts';
import { newId } from '../../src/platform/ids.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { summarizeRetention } from '../../src/store/archive-files.ts';
import { readUsageToday } from '../../src/store/counters.ts';
import { findApiKeys } from '../../src/store/credentials.ts';
import type { Database } from '../../src/store/database.ts';
import { countDeadLetters, listDeadLetters } from '../../src/store/dead-letter-actions.ts';
import { distribute } from '../../src/store/distribute.ts';
import { declareWorkspace, readSequenceValues } from '../../src/store/distributed.ts';
import { eraseHistories } from '../../src/store/erasures.ts';
import { forgetKeys } from '../../src/store/idempotency-keys.ts';
import { formsOf } from '../../src/store/one-workspace.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { listPartitions, ownersIn } from '../../src/store/partitions.ts';
import { searchUsers } from '../../src/store/profile-search.ts';
import { leaseExports } from '../../src/store/segment-export-leases.ts';
import { leaseDestinations } from '../../src/store/stream-leases.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';
import { createDatabaseOfOne } from '../setup/fixtures.ts';
import { refused } from './distributed/refused.ts';
import { sendEverything } from './plans/everything.ts';
import { type Filled, fill, fillUncounted } from './plans/fill.ts';
import type { Sent } from './plans/record.ts';

/** From the sixth execution on, Postgres may use a generic plan for a prepared statement. */
const TIMES = 7;

/** Rows of each large table on the Citus. */
const ROWS = 400;

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let citus: Database;
  let filled: Filled;
  let sent: Sent[];

  beforeAll(async () => {
    const now = Date.now();
    ({ sent, filled } = await everyStatement(now));
    const { url } = await createCitusDatabase();
    await migrate(url);
    citus = openDatabase(url, 1);
    await distribute(citus.pool);
    await fillUncounted(citus.pool, ROWS, now);
  });
  afterAll(() => citus?.stop());

  test('plans and runs every statement of the store, except for the listed exceptions', {
    timeout: 600_000,
  }, async () => {
    const collected = new Map<string, string>();
    for (const one of sent) {
      const why = await refusal(citus, filled, one);
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
    const { workspaceId, users } = filled;
    const [{ email, phone }] = users as [(typeof users)[0]];
    for (const [search, found] of [
      [{ prefix: 'user' }, 10],
      [{ aliasName: 'alias2' }, 1],
      [{ email }, 1],
      [{ phone }, 1],
      [{ email: 'nobody@x.com' }, 0],
    ] as const)
      expect(await searchUsers(pool, [newId(), workspaceId], { search, limit: 10 })).toHaveLength(found);
    for (const [which, count] of new Map<{ workspaceId?: string; states?: string[] }, number>([
      [{}, ROWS],
      [{ workspaceId }, ROWS / 2],
      [{ workspaceId: newId() }, 0],
      [{ states: ['waiting', 'replaying'] }, ROWS / 20],
    ])) {
      expect(await listDeadLetters(pool, which, { limit: ROWS })).toHaveLength(count);
      expect(await countDeadLetters(pool, which)).toBe(count);
    }
    const [month] = await listPartitions(pool);
    await ownersIn(pool, month!);
    await summarizeRetention(pool, { limit: 10 });
  });

  test('the Prisma client reads every model that it has', async () => {
    const models = citus.prisma as unknown as Record<string, { findFirst(): Promise<unknown> }>;
    // Citus rejects the recursive view in the form of the client. Only `penstock dev` reads it so, and its Postgres is its own.
    const names = Object.values(Prisma.ModelName).filter((name) => name !== 'KeptDeadLetter');
    for (const name of names) await models[name[0]!.toLowerCase() + name.slice(1)]!.findFirst();
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

/**
 * Returns each statement of the store once, with those that only a distributed Postgres receives. The functions of the store
 * send them to one Postgres, which is filled for the time `now`.
 */
async function everyStatement(now: number): Promise<{ sent: Sent[]; filled: Filled }> {
  const database = openDatabase((await createDatabaseOfOne()).url, 1);
  const filled = await fill(database.pool, now);
  const tx = await database.pool.connect();
  try {
    await tx.query('begin');
    const sent = [
      ...(await sendEverything(tx, filled)).sent,
      ...(await sendEverything(tx, filled, { isDistributed: true })).sent,
    ];
    return { sent: [...new Map(sent.map((one) => [one.text, one])).values()], filled };
  } finally {
    await tx.query('rollback');
    tx.release();
    await database.stop();
  }
}

/** @returns the error; undefined if the statement succeeds in each of its forms, however often it is sent */
async function refusal(
  { pool }: Database,
  { workspaceId }: Filled,
  { text, values }: Sent,
): Promise<string | undefined> {
  for (const isDeclared of formsOf(text).map((_, nth) => nth === 1)) {
    const tx = await pool.connect();
    try {
      for (let time = 1; time <= TIMES; time++) {
        await tx.query('begin');
        await readSequenceValues(tx);
        if (isDeclared) await declareWorkspace(tx, workspaceId);
        await tx.query({ name: 'statement', text, values });
        await tx.query('rollback');
      }
    } catch (error) {
      await tx.query('rollback');
      return (error as Error).message;
    } finally {
      tx.release(true);
    }
  }
  return undefined;
}
