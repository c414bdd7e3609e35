import { startCommitCutter } from '../../../test/workers/commit-cutter.ts';
import { startLoad } from '../load/load.ts';
import type { Scenario } from '../scenario.ts';

export const cutCommits: Scenario = {
  number: 9,
  fault: 'connection cut after COMMIT was sent, before its reply',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const cuts = scene.choose(1000, 20);
    const fleet = await scene.startFleet({ edges: 1, workers: 0 });
    const cutter = await startCommitCutter(fleet.env.DATABASE_URL!);
    // A cut lease of a lane is tested elsewhere.
    await fleet.startWorker({ DATABASE_URL: cutter.url });
    const load = startLoad(fleet, { clients: 4, peoplePerRequest: 1, maxUnapplied: 200 });
    for (let cut = 0; cut < cuts; cut++) {
      scene.say(`cut ${cut + 1} of ${cuts}`);
      cutter.arm(cut % 4 === 0 ? 'before' : 'after');
      while (cutter.cuts() === cut) await load.more(1);
    }
    await scene.waitUntilApplied(fleet, { load });
    scene.figure('connections cut', cutter.cuts(), '', { atLeast: cuts });
  },
};
