import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import { QueueUnavailable } from '../../src/queue/lanes.ts';
import { forgetEnvelopes } from '../../src/store/ledger.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { eitherBackend } from '../setup/fleet.ts';
import { at, countingRow, eventRow, users } from './memory-source.ts';
import { createSyncScene, never, type SyncParts, type SyncScene } from './scene.ts';

describe.each(eitherBackend)('an interrupted or doubly executed run, with the queue in %s', (kind) => {
  let scene: SyncScene;
  beforeAll(async () => {
    scene = await createSyncScene(kind);
    return scene.stop;
  });

  test('a run whose integration is deleted meanwhile leaves no rows', async () => {
    const rows = users('del', 5000).map((user, i) => countingRow(user, at(i)));
    const integration = await scene.integrate({ rows });
    const id = await scene.begin(integration);
    const done = scene.process(id);
    await waitUntil(async () => (await scene.runRow(id)).rows_read > 0, {
      what: 'the first chunk',
      fleeting: true,
    });
    await scene.pool.query('delete from integrations where id = $1', [integration]);
    expect(await done).toBe(true);
    for (const table of ['sync_jobs where id', 'sync_chunks where job_id', 'sync_row_errors where job_id'])
      expect((await scene.pool.query(`select from ${table} = $1`, [id])).rowCount).toBe(0);
  });

  test('an interrupted run is resumed, and its rows take effect once', async () => {
    const rows = users('left', 3000).map((user, i) => countingRow(user, at(i)));
    const id = await scene.begin(await scene.integrate({ rows }));
    for (const goal of [1, 500, 1500]) {
      const leaving = new AbortController();
      const worked = scene.process(id, { soon: leaving.signal, now: never.now });
      await waitUntil(async () => (await scene.runRow(id)).rows_read >= goal, { what: `${goal} rows` });
      leaving.abort();
      if (await worked) break;
    }
    await scene.process(id);
    expect(await scene.runRow(id)).toMatchObject({ status: 'success', rows_read: 3000, rows_synced: 3000 });
    const points = await scene.pointsOf('left');
    expect(points).toHaveLength(3000);
    expect(points.filter(([, count]) => count !== 1)).toEqual([]);
  });

  test('the ledger keeps enqueued chunks of a run until its checkpoint, whatever their age', async () => {
    const msecs = Date.now() - 30 * 86_400_000;
    const [kept, other] = [uuidv7({ msecs }), uuidv7({ msecs })];
    const run = await scene.begin(await scene.integrate({ rows: [] }));
    await scene.pool.query(
      "insert into ledger (envelope_id, applied_at) select unnest($1::uuid[]), now() - interval '30 days'",
      [[kept, other]],
    );
    await scene.pool.query(
      "insert into sync_chunks (job_id, envelope_ids, entries, rows, progress) values ($1, $2, '[]', '{}', '{}')",
      [run, [kept]],
    );
    await forgetEnvelopes(scene.enginePool, 7);
    const { rows } = await scene.pool.query('select envelope_id from ledger where envelope_id = any($1)', [
      [kept, other],
    ]);
    expect(rows).toEqual([{ envelope_id: kept }]);
    await scene.pool.query('delete from sync_jobs where id = $1', [run]);
  });

  test('a chunk that was applied but not counted is counted, and not applied again', async () => {
    const rows = [eventRow('again', at(1), 'again'), eventRow('again', at(2), 'again')];
    const id = await scene.begin(await scene.integrate({ rows }, { kind: 'events' }));
    const crashing: Partial<SyncParts> = {
      producer: {
        // Simulates a death after the chunk was enqueued and applied.
        async add(entries) {
          await scene.parts.producer.add(entries);
          await waitUntil(async () => (await scene.countEvents('again')) === 2, { what: 'the effect' });
          throw new TypeError('died');
        },
      },
    };
    const leaving = new AbortController();
    const worked = scene.process(id, { soon: leaving.signal, now: never.now }, crashing);
    await waitUntil(async () => (await scene.countEvents('again')) === 2, { what: 'the effect' });
    leaving.abort();
    expect(await worked).toBe(false);
    expect((await scene.pool.query('select from sync_chunks where job_id = $1', [id])).rowCount).toBe(1);
    expect(await scene.process(id)).toBe(true);
    expect(await scene.runRow(id)).toMatchObject({ status: 'success', rows_read: 2, rows_synced: 2 });
    expect(await scene.countEvents('again')).toBe(2);
  });

  test('a run retries a refused chunk without opening its source again', async () => {
    const rows = users('refused', 10).map((user, i) => eventRow(user, at(i), 'refused'));
    const id = await scene.begin(await scene.integrate({ rows }, { kind: 'events' }));
    let [refusals, opened] = [0, 0];
    const { metrics } = scene;
    const { open, producer } = scene.parts;
    const waited = async () => (await metrics.retries.get()).values[0]?.value ?? 0;
    const before = await waited();
    const change: Partial<SyncParts> = {
      producer: {
        async add(entries) {
          if (refusals++ < 2) throw new QueueUnavailable('full');
          await producer.add(entries);
        },
      },
      open(...given) {
        opened++;
        return open(...given);
      },
    };
    expect(await scene.process(id, never, change)).toBe(true);
    expect(await scene.runRow(id)).toMatchObject({ status: 'success', rows_read: 10, rows_synced: 10 });
    expect(await scene.countEvents('refused')).toBe(10);
    expect([opened, (await waited()) - before]).toEqual([1, 2]);
  });

  test('two processes that execute one run at once apply each row once', async () => {
    const rows = users('twice', 4000).map((user, i) => eventRow(user, at(Math.floor(i / 1000)), 'twice'));
    const id = await scene.begin(await scene.integrate({ rows }, { kind: 'events' }));
    const works = Array.from({ length: 4 }, () => scene.process(id));
    await Promise.all(works);
    await scene.process(id);
    expect(await scene.runRow(id)).toMatchObject({ status: 'success', rows_read: 4000, rows_synced: 4000 });
    expect(await scene.countEvents('twice')).toBe(4000);
  });
});
