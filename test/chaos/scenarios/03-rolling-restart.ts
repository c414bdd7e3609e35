import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const rollingRestart: Scenario = {
  number: 3,
  fault: 'SIGTERM, rolling, of edge and workers under load',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene);
    const ends: { code: number | null; milliseconds: number }[] = [];
    for (let round = 0; round < scene.choose(3, 1); round++) {
      for (const worker of [...fleet.workers]) {
        await load.more(scene.choose(500, 50));
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
    await scene.settle(fleet, { load, circles });
    const failed = [...load.journal.statuses()].reduce(
      (sum, [status, count]) => sum + (status === 201 ? 0 : count),
      0,
    );
    scene.figure('processes asked to end', ends.length, '', {});
    scene.figure('requests of keep-alive clients that failed', failed, '', { atMost: 0 });
    scene.figure('ends with another code than 0', ends.filter(({ code }) => code !== 0).length, '', {
      atMost: 0,
    });
    const slowest = Math.max(...ends.map(({ milliseconds }) => milliseconds));
    scene.figure('slowest end', slowest / 1000, 's', { atMost: 5 });
  },
};
