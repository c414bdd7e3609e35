import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrate } from '../../src/processes/migrate.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { distribute } from './distributed/distribute.ts';
import { ofOneWorkspace } from '../../src/store/one-workspace.ts';
import { refused } from './distributed/refused.ts';
import { sendEverything } from './plans/everything.ts';
import { fill } from './plans/fill.ts';
import type { Sent } from './plans/record.ts';

/** From the sixth time on a prepared statement may have a plan for whatever it is given. */
const TIMES = 7;

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let citus: Database;
  let sent: Sent[];

  beforeAll(async () => {
    sent = await everyStatement();
    // Workers' sessions have plans for whatever they are given: of those a Citus refuses nearly half.
    const url = await createCitusDatabase();
    citus = openDatabase(url, 1, { session: { plan_cache_mode: 'auto' } });
    await migrate(url);
    await distribute(citus.pool);
  });
  afterAll(() => citus.stop());

  test('every statement of the store is planned and run, but for those named with a reason', async () => {
    const found = new Map<string, string>();
    for (const one of sent) {
      const why = await refusal(citus, one);
      if (why) found.set(one.site, why);
    }
    expect([...found].filter(([site]) => !(site in refused))).toEqual([]);
    expect(Object.keys(refused).filter((site) => !found.has(site))).toEqual([]);
  });

  test('the partition of a new month lies with the others, on all nodes', async () => {
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

test.skipIf(citusUrl)('LEFT OUT: nothing was tried on a Citus, since CITUS_URL names none', () => {});

/** Each text once, as the functions of the store send them to one Postgres. */
async function everyStatement(): Promise<Sent[]> {
  const database = openDatabase((await createDatabase()).url, 1);
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

/** @returns why it fails; undefined: it does not, however often it is sent */
async function refusal({ pool }: Database, { text, values }: Sent): Promise<string | undefined> {
  const tx = await pool.connect();
  try {
    for (let time = 1; time <= TIMES; time++) {
      await tx.query('begin');
      await tx.query({ name: 'statement', text: ofOneWorkspace(text), values });
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
