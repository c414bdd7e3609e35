import { busyWorker, type Member } from '../../../test/setup/fleet.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const rollingRestart: Scenario = {
  number: 3,
  fault: 'SIGTERM, rolling, of edge and workers under load',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene, { edges: 2 });
    const ends: { code: number | null; milliseconds: number }[] = [];
    for (let round = 0; round < scene.choose(3, 1); round++) {
      const workers = [...fleet.workers];
      while (workers.length > 0) {
        await load.more(scene.choose(500, 50));
        // Stop a worker during a batch, if one of the remaining original workers is busy.
        const busy = workers.indexOf(await busyWorker(fleet));
        const [worker] = workers.splice(Math.max(0, busy), 1) as [Member];
        scene.say(`SIGTERM to ${worker.name}`);
        ends.push(await fleet.end(worker, 'SIGTERM'));
        await fleet.startWorker();
      }
      for (const edge of [...fleet.edges]) {
        await load.more(scene.choose(500, 50));
        scene.say(`SIGTERM to ${edge.name}`);
        ends.push(await fleet.end(edge, 'SIGTERM'));
        await fleet.startEdge();
      }
    }
    await load.more(100);
    await scene.waitUntilApplied(fleet, { load, circles });
    scene.figure('processes asked to end', ends.length, '', {});
    scene.figure('requests of keep-alive clients that failed', load.journal.requestsBut(201), '', {
      atMost: 0,
    });
    scene.figure('ends with another code than 0', ends.filter(({ code }) => code !== 0).length, '', {
      atMost: 0,
    });
    // Stop idle workers at the same time: a lane that one gives back must not be taken by another that is
    // stopping as well.
    const idle: typeof ends = [];
    const rounds = scene.choose(10, 2);
    for (let round = 1; round <= rounds; round++) {
      scene.say('SIGTERM to all workers at once');
      const workers = [...fleet.workers];
      idle.push(...(await Promise.all(workers.map((worker) => fleet.end(worker, 'SIGTERM')))));
      if (round < rounds) await Promise.all(workers.map(() => fleet.startWorker()));
    }
    scene.figure('idle workers asked to end together', idle.length, '', {});
    scene.figure(
      'of these, ends with another code than 0',
      idle.filter(({ code }) => code !== 0).length,
      '',
      {
        atMost: 0,
      },
    );
    ends.push(...idle);
    const slowest = Math.max(...ends.map(({ milliseconds }) => milliseconds));
    scene.figure('slowest end', slowest / 1000, 's', { atMost: 5, firm: true });
  },
};
