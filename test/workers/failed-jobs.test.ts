import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { Worker } from '../../src/queue/bullmq.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { type LaneEntry, laneName } from '../../src/queue/lanes.ts';
import { ledgerKey } from '../../workers/batch/open.ts';
import { removeAppliedFailures, startUpkeep } from '../../workers/upkeep/upkeep.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { event, openPool } from './batch.ts';
import { createFenceScene, type FenceScene } from './fence-scene.ts';

describe.each(['redis', 'postgres'] as const)('failed jobs of a lane on %s', (kind) => {
  let scene: FenceScene;
  beforeAll(async () => {
    scene = await createFenceScene(kind);
    return scene.stop;
  });
  const config = () => readConfig(scene.env);

  /** Marks jobs as failed, like a worker that has died since. */
  async function fail(...entries: LaneEntry[]): Promise<void> {
    await scene.producer.add(entries);
    const connection = connectWorker(config(), scene.env.DATABASE_URL);
    for (const { lane, id } of entries) {
      const breakOff = async () => {
        throw new Error('read ECONNRESET');
      };
      const worker = new Worker(laneName(lane), breakOff, connection.options, connection.factory);
      worker.on('error', () => {});
      await waitUntil(async () => (await stateOf({ lane, id })) === 'failed', { what: 'the failed job' });
      await worker.close();
    }
    await connection.stop();
  }

  const stateOf = ({ lane, id }: Pick<LaneEntry, 'lane' | 'id'>) => scene.queues[lane]!.getJobState(id);
  const states = (entries: LaneEntry[]) => Promise.all(entries.map(stateOf));

  async function recordAsApplied(...ids: string[]): Promise<void> {
    await scene.pool.query('insert into ledger (envelope_id) select unnest($1::uuid[])', [ids]);
  }

  test('G1: a worker removes only failed jobs that took effect, and logs the others', async () => {
    const applied = [scene.plain(0, event('ann')), scene.plain(1, event('bob'))];
    const lost = scene.plain(0, event('eve'));
    await fail(...applied, lost);
    await recordAsApplied(...applied.map(({ id }) => id));
    const errors: unknown[] = [];
    const log = createLog('test', 'silent');
    log.error = (...line: unknown[]) => void errors.push(line);
    const connection = connectWorker(config(), scene.env.DATABASE_URL);
    const pool = openPool(scene.env.DATABASE_URL);
    const upkeep = await startUpkeep({
      ...{ laneStore: connection.laneStore, pool, objects: () => 0, config: config(), log },
    });
    await waitUntil(async () => (await states(applied)).every((state) => state === 'unknown'), {
      what: 'the jobs that took effect to be gone',
    });
    await waitUntil(() => errors.length > 0, { what: 'the line about the other one' });
    expect(errors).toEqual([
      [{ lane: 'lane-0', jobs: [lost.id] }, 'jobs of a lane failed and did not take effect'],
    ]);
    expect(await stateOf(lost)).toBe('failed');
    await upkeep.stop();
    await connection.stop();
    await pool.end();
    await scene.queues[0]!.remove(lost.id);
  });

  test('the mark of a fence counts as applied only after the fence is passed', async () => {
    const [whole, mark] = scene.fence([0, 2], event('ann')) as [LaneEntry, LaneEntry];
    await fail(whole, mark);
    expect(await removeAppliedFailures(2, scene.connection.laneStore, scene.pool)).toEqual([mark.id]);
    await recordAsApplied(whole.id);
    expect(await removeAppliedFailures(2, scene.connection.laneStore, scene.pool)).toEqual([]);
    expect(await removeAppliedFailures(0, scene.connection.laneStore, scene.pool)).toEqual([]);
    expect(await states([whole, mark])).toEqual(['unknown', 'unknown']);
  });

  test('a job that was added by hand is found by the ledger key derived from its id', async () => {
    const entry = { ...scene.plain(1), id: `by-hand-${uuidv7()}` };
    await fail(entry);
    expect(await removeAppliedFailures(1, scene.connection.laneStore, scene.pool)).toEqual([entry.id]);
    await recordAsApplied(ledgerKey(entry.id));
    expect(await removeAppliedFailures(1, scene.connection.laneStore, scene.pool)).toEqual([]);
    expect(await stateOf(entry)).toBe('unknown');
  });
});
