import { setTimeout as sleep } from 'node:timers/promises';
import { residentMegabytes } from '../../resident-megabytes.ts';
import { countQueue } from '../check/queue.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic, throttle } from '../traffic.ts';

/** Share of the time that counts as warm-up, in which Node's heaps grow to their size. */
const WARM_UP = 0.3;

export const soak: Scenario = {
  number: 25,
  fault: 'soak at 80 % of full load',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const traffic = await beginTraffic(scene);
    const { fleet, load, circles } = traffic;
    if (!scene.short) await throttle(scene, traffic, 0.8);
    const seconds = scene.choose(600, 4);
    const members = [...fleet.edges, ...fleet.workers];
    const samples: { minute: number; megabytes: number }[] = [];
    const from = Date.now();
    while (Date.now() - from < seconds * 1000) {
      await sleep(scene.choose(2000, 200));
      const elapsed = (Date.now() - from) / 1000;
      scene.say(
        `${Math.round(elapsed)} of ${seconds} s, ${load.journal.acknowledged.toLocaleString('en')} objects`,
      );
      if (elapsed < seconds * WARM_UP) continue;
      const megabytes = members.reduce((sum, { pid }) => sum + (residentMegabytes(pid) ?? 0), 0);
      samples.push({ minute: elapsed / 60, megabytes });
    }
    const { failed } = await countQueue(fleet);
    scene.figure('failed jobs', failed, '', { atMost: 0 });
    scene.figure('memory of all processes', samples.at(-1)!.megabytes, 'MB');
    scene.figure('its slope', slopeOf(samples), 'MB/min', scene.choose({ atMost: 5 }, {}));
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};

/** Returns the slope of a linear regression through the samples. */
function slopeOf(samples: { minute: number; megabytes: number }[]): number {
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(samples.map(({ minute }) => minute)), mean(samples.map(({ megabytes }) => megabytes))];
  const over = samples.reduce((sum, { minute, megabytes }) => sum + (minute - x) * (megabytes - y), 0);
  const under = samples.reduce((sum, { minute }) => sum + (minute - x) ** 2, 0);
  return over / under;
}
