import { setTimeout as sleep } from 'node:timers/promises';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';
import { noTrouble, startTroubleProxy, type Trouble } from '../trouble-proxy.ts';

const phases: [name: string, trouble: Partial<Trouble>][] = [
  ['no trouble', {}],
  ['+100 ms', { delay: 100 }],
  ['1 % resets', { resets: 0.01 }],
  ['10 KB/s', { bytesPerSecond: 10_000 }],
  ['all of it', { delay: 100, resets: 0.01, bytesPerSecond: 10_000 }],
];

export const badNetwork: Scenario = {
  number: 23,
  fault: '+100 ms latency, 1 % resets, 10 KB/s towards Redis and Postgres',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { url } = await scene.createDatabase();
    const postgres = await startTroubleProxy(url, scene.random);
    const env = { DATABASE_URL: postgres.url, QUEUE_TIMEOUT_MS: '700' };
    const fleet = { edges: 2, workers: 2, env };
    const redis = await scene.startRedisBehind((redisUrl) => startTroubleProxy(redisUrl, scene.random));
    const {
      fleet: started,
      load,
      circles,
    } = await beginTraffic(
      scene,
      { url, ...fleet, ...(redis && { redis: redis.server, env: { ...env, REDIS_URL: redis.proxy.url } }) },
      { peoplePerRequest: 2, maxUnapplied: 1000 },
    );
    const seconds = scene.choose(60, 2);
    const rates: number[] = [];
    for (const [name, trouble] of phases) {
      scene.say(name);
      postgres.set(trouble);
      redis?.proxy.set(trouble);
      const [before, from] = [load.journal.acknowledged, performance.now()];
      await sleep(seconds * 1000);
      const rate = (load.journal.acknowledged - before) / ((performance.now() - from) / 1000);
      rates.push(rate);
      scene.notes.push(`${name}: ${Math.round(rate)} objects/s acknowledged`);
    }
    postgres.set(noTrouble);
    redis?.proxy.set(noTrouble);
    await load.more(100, 120_000);
    scene.figure('connections reset', postgres.resets() + (redis?.proxy.resets() ?? 0), '', { atLeast: 1 });
    // In a run of seconds, a single envelope changes the rate too much for a limit.
    const moving = scene.choose({ atLeast: 1 }, {});
    scene.figure('objects/s with +100 ms', rates[1]!, '', moving);
    scene.figure('objects/s with 1 % resets', rates[2]!, '', moving);
    await scene.waitUntilApplied(started, { load, circles });
  },
};
