import { deadlocksOf, readCrossed, sendCrossingMerges } from '../../../test/faults/crossing-merges.ts';
import { waitUntilApplied } from '../../../test/identity-model/run.ts';
import type { Scenario } from '../scenario.ts';

export const crossingMerges: Scenario = {
  number: 12,
  fault: 'opposite merges, chains and cycles by many workers',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const fleet = await scene.startFleet({ env: { LOG_LEVEL: 'info' } });
    scene.say('merging');
    const sent = await sendCrossingMerges(fleet, { merges: scene.choose(10_000, 500), seed: scene.seed });
    scene.say('waiting for the workers');
    await waitUntilApplied(fleet, sent.events + sent.merges, 300_000);
    const crossed = await readCrossed(fleet);
    scene.figure('merges', sent.merges, '', {});
    scene.figure('answers but 201 and 202', sent.refused, '', { atMost: 0 });
    scene.figure('deadlocks in the logs', deadlocksOf(fleet).length, '', { atMost: 0 });
    scene.figure('events counted', crossed.counted, '', { atLeast: sent.events, atMost: sent.events });
    scene.figure('summaries of nobody', crossed.summaries - crossed.living, '', { atMost: 0 });
    scene.figure('dead letters', crossed.deadLetters, '', { atMost: 0 });
    await scene.waitUntilApplied(fleet, {});
  },
};
