import { swapped } from '../broken/swapped.ts';
import { startLoad } from '../load/load.ts';
import type { Scenario } from '../scenario.ts';

export const deliveredThrice: Scenario = {
  number: 10,
  fault: 'each job delivered three times',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const objects = scene.choose(100_000, 1000);
    const fleet = await scene.startFleet({
      env: swapped('workers/lane/scheduler.js', 'tools/chaos/broken/delivers-thrice.js'),
    });
    const load = startLoad(fleet, { peoplePerRequest: 25, maxUnapplied: 10_000 });
    while (load.journal.acknowledged < objects) {
      await load.more(Math.min(1000, objects));
      scene.say(`${load.journal.acknowledged} of ${objects} objects`);
    }
    await scene.waitUntilApplied(fleet, { load });
    scene.figure('objects delivered three times', scene.sums[0]!.applied, '', { atLeast: objects });
  },
};
