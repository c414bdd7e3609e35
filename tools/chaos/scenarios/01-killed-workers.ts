import { setTimeout as sleep } from 'node:timers/promises';
import { busyWorker, everyLaneMoves, type Fleet } from '../../../test/setup/fleet.ts';
import { pick } from '../../load/random.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic, throttle } from '../traffic.ts';

const SHORT_KILLS = 3;

/** Workers are killed or frozen, during a batch and at any time; the others take over. */
export const killedWorkers: Scenario = {
  number: 1,
  fault: '`kill -9` of a worker every 3–5 s, and some that freeze (SIGSTOP) in a batch and thaw',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const traffic = await beginTraffic(scene);
    const { fleet, load, circles } = traffic;
    if (!scene.short) await throttle(scene, traffic, 0.5);
    const end = Date.now() + scene.choose(60_000, 0);
    let kills = 0;
    let longest = 0;
    let lastKill = Date.now();
    while (scene.short ? kills < SHORT_KILLS : Date.now() < end) {
      const victim = kills % 2 === 0 ? await busyWorker(fleet) : pick(scene.random, fleet.workers);
      scene.say(`kill ${++kills}: ${victim.name}`);
      await fleet.end(victim);
      lastKill = Date.now();
      const successor = fleet.startWorker();
      // Lanes include the ones of the dead worker.
      const gap = await untilEveryLaneMoves(fleet);
      scene.recovered(gap);
      longest = Math.max(longest, gap);
      await successor;
      if (!scene.short) await sleep(Math.max(0, 3000 + scene.random() * 2000 - (Date.now() - lastKill)));
    }
    let without = 0;
    for (let freezes = 0; freezes < scene.choose(10, 1); freezes++) {
      await load.more(scene.choose(500, 50));
      const frozen = await busyWorker(fleet);
      scene.say(`SIGSTOP to ${frozen.name}`);
      frozen.kill('SIGSTOP');
      without = Math.max(without, await untilEveryLaneMoves(fleet));
      frozen.kill('SIGCONT');
    }
    await load.more(scene.choose(500, 50));
    scene.figure('kills', kills, '', { atLeast: scene.choose(8, SHORT_KILLS) });
    scene.figure('longest until every lane moves again', longest / 1000, 's', { atMost: 10, firm: true });
    scene.figure('longest until every lane moves alongside a frozen worker', without / 1000, 's', {
      ...{ atMost: 10, firm: true },
    });
    const { drained } = await scene.waitUntilApplied(fleet, { load, circles });
    scene.figure('drained after the last kill', (drained - lastKill) / 1000, 's', {
      atMost: scene.choose(15, 30),
    });
    const failed = load.journal.requestsBut(201);
    scene.figure('requests that failed', failed, '', { atMost: 0 });
  },
};

const untilEveryLaneMoves = (fleet: Fleet): Promise<number> =>
  everyLaneMoves(fleet, 30_000).catch(() => Number.POSITIVE_INFINITY);
