import { deadlocksOf, readCrossed, sendCrossingMerges } from '../../../test/faults/crossing-merges.ts';
import { settled } from '../../../test/identity-model/run.ts';
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
    await settled(fleet, sent.events + sent.merges, 300_000);
    const found = await readCrossed(fleet);
    scene.figure('merges', sent.merges, '', {});
    scene.figure('answers but 201 and 202', sent.refused, '', { atMost: 0 });
    scene.figure('deadlocks in the logs', deadlocksOf(fleet).length, '', { atMost: 0 });
    scene.figure('events counted', found.counted, '', { atLeast: sent.events, atMost: sent.events });
    scene.figure('summaries of nobody', found.summaries - found.living, '', { atMost: 0 });
    scene.figure('dead letters', found.deadLetters, '', { atMost: 0 });
    await scene.settle(fleet, {});
  },
};
