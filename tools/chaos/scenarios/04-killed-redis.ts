import { everyLaneMoves } from '../../../test/setup/fleet.ts';
import { startRedis } from '../../../test/setup/redis.ts';
import { notUnavailable, quantile, requestFor, untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const killedRedis: Scenario = {
  number: 4,
  fault: '`kill -9` of Redis, restarted after 3 s',
  backends: ['redis'],
  async run(scene) {
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, {
      env: { QUEUE_TIMEOUT_MS: '700' },
    });
    let redis = fleet.redis!;
    const times: number[] = [];
    const resumed: number[] = [];
    let others = 0;
    for (let round = 0; round < scene.choose(3, 1); round++) {
      scene.say('killing Redis');
      await redis.kill();
      // The first responses belong to requests that were in progress when Redis was killed.
      const answers = (await requestFor(fleet, knockKey, scene.choose(3000, 1000))).slice(fleet.edges.length);
      times.push(...answers.map(({ milliseconds }) => milliseconds));
      others += notUnavailable(answers).length;
      redis = await startRedis({ port: redis.port, dir: redis.dir });
      fleet.redis = redis;
      const from = Date.now();
      await untilAccepted(fleet, knockKey, 30_000);
      await everyLaneMoves(fleet, 30_000);
      resumed.push(Date.now() - from);
      scene.recovered(Date.now() - from);
      await load.more(100);
    }
    await scene.waitUntilApplied(fleet, { load, circles });
    scene.figure('answers while it is down that are no 503 with Retry-After', others, '', { atMost: 0 });
    scene.figure('p99 of the 503s', quantile(times, 0.99), 'ms', { atMost: 250 });
    scene.figure('slowest 503', Math.max(...times) / 1000, 's', { atMost: 1, firm: true });
    const odd = load.journal.requestsBut([201, 503]);
    scene.figure('requests of the load with another answer than 201 and 503', odd, '', { atMost: 0 });
    scene.figure('work resumes after it is back', Math.max(...resumed) / 1000, 's', { atMost: 5 });
  },
};
