import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrate } from '../../src/processes/migrate.ts';
import { distribute } from '../../src/store/distribute.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { applyInParts, deliver, event, openPool, point, readSums } from './batch.ts';

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let pool: pg.Pool;
  let one: TestWorkspace;
  let other: TestWorkspace;

  beforeAll(async () => {
    const { url } = await createCitusDatabase();
    await migrate(url);
    pool = openPool(url);
    await distribute(pool);
    one = await createWorkspace(pool, 'one');
    other = await createWorkspace(pool, 'other');
  });
  afterAll(() => pool.end());

  /** Creates an envelope with objects of both workspaces. */
  function shared(user: string): Delivery {
    const [first, second] = [one, other].map((workspace) =>
      deliver(workspace, [event(user), point(user)]),
    ) as [Delivery, Delivery];
    const requests = [first, second].map(({ envelope }) => ({ ...envelope.requests[0]!, count: 2 }));
    const objects = [first, second].flatMap(({ envelope }) => envelope.objects);
    return { ...first, envelope: { requests, objects } };
  }

  test('G2: a redelivered envelope of several workspaces takes effect once in each of them', async () => {
    const envelope = shared('ada');
    await applyBatch(pool, [envelope]);
    await applyBatch(pool, [deliver(other, [event('eve')]), envelope]);
    await applyBatch(pool, [envelope, deliver(one, [event('eve')])]);
    expect(await applyBatch(pool, [envelope])).toEqual({ kind: 'skipped' });
    for (const workspace of [one, other])
      expect(await readSums(pool, workspace)).toMatchObject({ points: 1, events: 2 });
  });

  test('G2: an envelope of several workspaces takes effect once if it is applied in parts', async () => {
    const before = await Promise.all([one, other].map((workspace) => readSums(pool, workspace)));
    const envelopes = Array.from({ length: 3 }, () => shared('bob'));
    await applyInParts(pool, envelopes);
    await applyBatch(pool, envelopes);
    for (const [position, workspace] of [one, other].entries())
      expect(await readSums(pool, workspace)).toMatchObject({
        ...{ points: before[position].points + 3, events: before[position].events + 3 },
      });
    expect((await pool.query('select from cut_envelopes')).rowCount).toBe(0);
  });

  test('an envelope that took effect before the tables were distributed is skipped', async () => {
    const envelope = shared('cy');
    await pool.query('insert into ledger (envelope_id) values ($1)', [envelope.id]);
    expect(await applyBatch(pool, [envelope])).toEqual({ kind: 'skipped' });
  });
});

test.skipIf(citusUrl)('LEFT OUT: no test ran on Citus because CITUS_URL is not set', () => {});
