import { patience, raceDeletes, raceMerges, readReturned, readSums } from '../../../test/faults/races.ts';
import { waitUntilApplied } from '../../../test/identity-model/run.ts';
import type { Scenario } from '../scenario.ts';

export const races: Scenario = {
  number: 13,
  fault: 'merge, delete and identify racing with track of the same users',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const seconds = scene.choose(60, 3);
    const merging = await scene.startFleet({ env: patience });
    scene.say('merges and identifies against track');
    const { elements, sums } = await raceMerges(merging, seconds);
    await waitUntilApplied(merging, elements, 600_000);
    const result = await readSums(merging);
    scene.figure('events counted', result.counted, '', { atLeast: sums.events, atMost: sums.events });
    scene.figure('pieces counted', result.pieces, '', { atLeast: sums.pieces, atMost: sums.pieces });
    scene.figure('dead letters', result.deadLetters, '', { atMost: 0 });
    await scene.waitUntilApplied(merging, {});
    await merging.stop();

    const deleting = await scene.startFleet({ env: patience });
    scene.say('deletes against all of them');
    const deletes = await raceDeletes(deleting, seconds);
    await waitUntilApplied(deleting, deletes.elements, 600_000);
    const { returned, orphans } = await readReturned(deleting, deletes.before);
    scene.figure('accepted before a delete', deletes.before.length, '', { atLeast: 1 });
    scene.figure('of them there again after it', returned.length, '', { atMost: 0 });
    scene.figure('summaries of nobody', orphans, '', { atMost: 0 });
    await scene.waitUntilApplied(deleting, {});
  },
};
