import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { withTimeout } from '../../src/platform/lifecycle.ts';
import { createLog } from '../../src/platform/log.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { startTroubleProxy } from '../../tools/chaos/trouble-proxy.ts';
import { Accounts } from '../../workers/lane/accounts.ts';
import { type LaneContext, LaneWorker } from '../../workers/lane/lane-worker.ts';
import { withLaneLease } from '../../workers/lane/lanes.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { silent } from './batch.ts';
import { silentFences } from './no-fences.ts';

let databaseUrl: string;
beforeAll(async () => {
  databaseUrl = (await createDatabase()).url;
});

test('a worker that is stopped takes no further lane', async () => {
  const logged: unknown[] = [];
  const log = createLog('test', 'silent');
  log.info = (_: unknown, message?: unknown) => void logged.push(message);
  let taken = 0;
  const start = () => {
    taken++;
    return { name: 'lane', stop: async () => {} };
  };
  // Stop at different moments while the lease is being acquired.
  for (let moment = 0; moment < 20; moment++) {
    const lease = withLaneLease({ databaseUrl, lane: 0, patience: 5000, start, log });
    if (moment > 0) await sleep(moment / 4);
    const before = taken;
    await lease.stop();
    expect(taken).toBe(before);
  }
  expect(logged).toHaveLength(taken);
});

test('a lane that has just been taken can be stopped immediately', async () => {
  const config = readConfig({ DATABASE_URL: databaseUrl });
  for (let moment = 0; moment < 12; moment++) {
    const connection = connectWorker(config, databaseUrl);
    const scheduler: LaneContext['scheduler'] = {
      accounts: new Accounts(),
      forget() {},
      step: async () => ({ kind: 'abandoned' }),
    };
    const context = {
      laneStore: connection.laneStore,
      scheduler,
      fences: silentFences(),
      config,
      log: silent,
    };
    const lane = new LaneWorker(moment, context);
    if (moment > 0) await sleep(moment * 3);
    await withTimeout(2000, lane.stop());
    await withTimeout(2000, connection.stop());
  }
});

test('a lease holder on a slow network sends no heartbeat before the last one is answered', async () => {
  const warnings: string[] = [];
  const note = ({ message }: Error) => void warnings.push(message);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  const network = await startTroubleProxy(databaseUrl, Math.random);
  let stopped = 0;
  let running = false;
  const start = () => {
    running = true;
    return { name: 'lane', stop: async () => void stopped++ };
  };
  const patience = 2000;
  const lease = withLaneLease({ databaseUrl: network.url, lane: 0, patience, start, log: silent });
  await waitUntil(() => running, { what: 'the lane to be taken' });
  // The round trip takes longer than the interval between two heartbeats.
  network.set({ delay: 400 });
  await sleep(2 * patience);
  network.set({});
  expect(stopped).toBe(0);
  await lease.stop();
  expect(warnings).toEqual([]);
});
