import { rmSync } from 'node:fs';
import path from 'node:path';
import { everyLaneMoves } from '../../setup/fleet.ts';
import { startRedis } from '../../setup/servers.ts';
import { untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** The line in which a worker says it. */
const TOLD = /came back empty/;

export const emptyRedis: Scenario = {
  number: 7,
  fault: 'Redis comes back empty',
  backends: ['redis'],
  async run(scene) {
    const { fleet, load, knockKey, circles } = await beginTraffic(scene, {
      env: { QUEUE_TIMEOUT_MS: '700' },
    });
    let redis = fleet.redis!;
    const kills: number[] = [];
    for (let round = 0; round < scene.choose(3, 1); round++) {
      await load.more(100);
      scene.say('killing Redis, and removing what it had');
      await redis.kill();
      kills.push(Date.now());
      rmSync(path.join(redis.dir, 'appendonlydir'), { recursive: true });
      redis = await startRedis({ port: redis.port, dir: redis.dir });
      const from = Date.now();
      await untilAccepted(fleet, knockKey, 30_000);
      await everyLaneMoves(fleet, 30_000);
      scene.recovered(Date.now() - from);
      await load.more(scene.choose(3000, 500));
    }
    const told = fleet.workers.filter(({ log }) => log.some(({ msg }) => TOLD.test(String(msg)))).length;
    // Which of its accepted requests a circle has lost cannot be told from outside; that no lane waits for ever can.
    await circles.stop();
    await scene.settle(fleet, {
      load,
      // Accepted before the kill, a moment before which it may have been answered.
      mayLose: ({ sentAt }) => kills.some((kill) => sentAt < kill && kill - sentAt < 30_000),
    });
    scene.figure('workers that tell the operator', told, '', { atLeast: fleet.workers.length });
    scene.figure('work resumes after it is back', Math.max(...scene.recoveries) / 1000, 's', { atMost: 10 });
  },
};
