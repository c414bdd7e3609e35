import { setTimeout as sleep } from 'node:timers/promises';
import { pick } from '../../load/random.ts';
import { everyLaneMoves } from '../../setup/fleet.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic, throttle } from '../traffic.ts';

export const killedWorkers: Scenario = {
  number: 1,
  fault: '`kill -9` of a worker every 3–5 s',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const traffic = await beginTraffic(scene);
    const { fleet, load, circles } = traffic;
    if (!scene.short) await throttle(scene, traffic, 0.5);
    const end = Date.now() + scene.choose(60_000, 6_000);
    let kills = 0;
    let longest = 0;
    let lastKill = Date.now();
    while (Date.now() < end) {
      const victim = pick(scene.random, fleet.workers);
      scene.say(`kill ${++kills}: ${victim.name}`);
      await fleet.end(victim);
      lastKill = Date.now();
      const successor = fleet.startWorker();
      // The dead one's lanes included.
      const gap = await everyLaneMoves(fleet, 30_000).catch(() => Number.POSITIVE_INFINITY);
      scene.recovered(gap);
      longest = Math.max(longest, gap);
      await successor;
      await sleep(Math.max(0, 3000 + scene.random() * 2000 - (Date.now() - lastKill)));
    }
    scene.figure('kills', kills, '', { atLeast: scene.choose(8, 1) });
    scene.figure('longest until every lane moves again', longest / 1000, 's', { atMost: 10 });
    const { drained } = await scene.settle(fleet, { load, circles });
    scene.figure('drained after the last kill', (drained - lastKill) / 1000, 's', { atMost: 15 });
  },
};
