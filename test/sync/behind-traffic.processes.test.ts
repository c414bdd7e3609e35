import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Envelope } from '../../src/jobs/envelope.ts';
import { createRowReader } from '../../workers/sync/read.ts';
import { createChunkSize } from '../../workers/sync/throttle.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { eitherBackend } from '../setup/fleet.ts';
import { at, countingRow } from './memory-source.ts';
import { createSyncScene, never, type SyncParts, type SyncScene } from './scene.ts';

/** Milliseconds in which the engine could add many chunks if it did not wait. */
const A_WHILE = 1000;

describe.each(eitherBackend)('live requests during a sync, with the queue in %s', (kind) => {
  let scene: SyncScene;
  beforeAll(async () => {
    scene = await createSyncScene(kind, { workers: 0, lanes: 1 });
    return scene.stop;
  });

  test('one chunk of a run is in the lanes at a time: a live request comes right after it', async () => {
    const rows = Array.from({ length: 5000 }, (_, index) => countingRow(`u${index}`, at(index)));
    const run = await scene.begin(await scene.integrate({ rows }));
    const worked = scene.process(run);
    await waitUntil(async () => (await scene.lane.getWaitingCount()) === 1, { what: 'the first chunk' });
    const live = {
      requests: [
        {
          ...{ request_id: 'live', workspace_id: scene.workspaceId, accepted_at: new Date().toISOString() },
          count: 1,
        },
      ],
      objects: [
        {
          kind: 'attributes',
          id: uuidv7(),
          index: 0,
          create: true,
          identifier: { external_id: 'live' },
        },
      ],
    } as Envelope;
    await scene.parts.producer.add([{ lane: 0, id: uuidv7(), envelope: live }]);
    // The lane has no worker: a run that does not wait for its first chunk would add the next one now.
    await Promise.race([worked, sleep(A_WHILE)]);
    const jobs = await scene.lane.getJobs(['waiting'], 0, -1, true);
    const envelopes = jobs.map(({ data }) => data as Envelope);
    expect(envelopes.map(({ requests }) => requests[0]!.request_id)).toEqual([run, 'live']);
    expect(envelopes[0]!.objects.length).toBeLessThanOrEqual(1000);
    expect((await scene.pool.query('select from sync_chunks')).rowCount).toBe(1);

    scene.startWorker();
    expect(await worked).toBe(true);
    expect(await scene.runRow(run)).toMatchObject({ status: 'success', rows_synced: 5000 });
  });

  test('a run waits while the lanes have a backlog', async () => {
    const run = await scene.begin(await scene.integrate({ rows: [countingRow('behind', at(0))] }));
    let isBehind = true;
    const requested: number[] = [];
    const change: Partial<SyncParts> = {
      throttleOf: () => async (rows: number) => {
        requested.push(rows);
        return isBehind ? 5 : 0;
      },
    };
    const worked = scene.process(run, never, change);
    await waitUntil(() => requested.length > 20, { what: 'it to ask again' });
    expect((await scene.pool.query('select from sync_chunks')).rowCount).toBe(0);
    isBehind = false;
    expect(await worked).toBe(true);
    expect(await scene.runRow(run)).toMatchObject({ status: 'success', rows_synced: 1 });
  });
});

describe('the size of a chunk', () => {
  test('grows to 1,000 rows while the lanes are fast', () => {
    const size = createChunkSize();
    for (let chunk = 0; chunk < 20; chunk++) size.learn(size.now(), 20);
    expect(size.now()).toBe(1000);
  });

  test('shrinks while the lanes are slow, to keep the wait of a live request short', () => {
    const size = createChunkSize();
    for (let chunk = 0; chunk < 20; chunk++) size.learn(size.now(), 20);
    // Lanes that take a thousand rows a second.
    for (let chunk = 0; chunk < 20; chunk++) size.learn(size.now(), size.now());
    expect(size.now()).toBe(500);
    for (let chunk = 0; chunk < 20; chunk++) size.learn(size.now(), 10_000);
    expect(size.now()).toBe(50);
  });

  test("is also limited in bytes, and independent of the source's batches", async () => {
    async function* batches() {
      for (let batch = 0; batch < 3; batch++) {
        yield Array.from({ length: 2 }, (_, row) => ({
          identifiers: { external_id: `${batch}-${row}` },
          payload: 'x'.repeat(300_000),
        }));
      }
    }
    const next = createRowReader(batches());
    const sizes = [];
    for (let rows = await next(1000); rows.length > 0; rows = await next(1000)) sizes.push(rows.length);
    expect(sizes).toEqual([3, 3]);
  });
});
