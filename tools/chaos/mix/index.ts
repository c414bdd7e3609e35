import { setTimeout as sleep } from 'node:timers/promises';
import { backends } from '../../../test/setup/fleet.ts';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import { pick } from '../../load/random.ts';
import { quantile } from '../answers.ts';
import { untilLanesMove } from '../lanes-move.ts';
import { raiseLimitsOf } from '../load/limits.ts';
import { type LoadOptions, startLoad } from '../load/load.ts';
import { startOwnPostgres } from '../own-postgres.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';
import { mixedFaults, type Target } from './faults.ts';

export interface MixOptions {
  minutes: number;
  /** Minimum number of acknowledged objects. */
  objects: number;
  /** Numbers of the faults that take part; empty means all that can be mixed. */
  numbers: number[];
  /** Prints a permanent line. */
  print(line: string): void;
}

/**
 * Target number of faults, which defines how many objects are acknowledged between two faults, and the
 * maximum wait for them.
 */
const FAULTS = 100;
const PAUSE_MS = 30_000;

/** Maximum milliseconds to wait for the lanes after a fault. */
const RECOVERY_TIMEOUT_MS = 120_000;

/** Two workspaces send as fast as they get responses, also while their share of the queue is full. */
const FLOOD: LoadOptions = { clients: 8, peoplePerRequest: 25, maxUnapplied: Number.POSITIVE_INFINITY };

/**
 * The long form: one fleet that two workspaces flood, with random faults, one after the other, which are the same for the same
 * seed.
 */
export function mix({ minutes, objects, numbers, print }: MixOptions): Scenario {
  return {
    number: 0,
    fault: `faults mixed at random for ${minutes} min and ${objects.toLocaleString('en')} objects`,
    backends,
    async run(scene) {
      const possible = mixedFaults.filter(
        (fault) =>
          fault.backends.includes(scene.backend) && (numbers.length === 0 || numbers.includes(fault.number)),
      );
      if (possible.length === 0) throw new Error('none of these faults can be mixed');
      const postgres = await startOwnPostgres();
      const { fleet, load, circles } = await beginTraffic(
        scene,
        { url: postgres.url, env: { QUEUE_TIMEOUT_MS: '2000' } },
        FLOOD,
      );
      const workspace = await createWorkspace(fleet.pool, 'flood');
      await raiseLimitsOf(fleet.pool, workspace.id);
      const flood = startLoad(fleet, { ...FLOOD, workspace });
      const acknowledged = () => load.journal.acknowledged + flood.journal.acknowledged;
      const target: Target = { fleet, postgres, redis: fleet.redis, random: scene.random };
      const from = Date.now();
      const struck = new Map<string, number[]>();
      while (Date.now() - from < minutes * 60_000 || acknowledged() < objects) {
        const fault = pick(scene.random, possible);
        const pause = 500 + scene.random() * 3500;
        scene.say(`${acknowledged().toLocaleString('en')} objects; next: ${fault.name}`);
        const goal = acknowledged() + objects / FAULTS;
        await sleep(pause);
        for (const end = Date.now() + PAUSE_MS; acknowledged() < goal && Date.now() < end; ) await sleep(100);
        const began = Date.now();
        await fault.strike(target);
        const lasted = Date.now() - began;
        const recovery = await untilLanesMove(fleet, RECOVERY_TIMEOUT_MS);
        scene.recovered(recovery);
        struck.set(fault.name, [...(struck.get(fault.name) ?? []), recovery]);
        const minute = ((Date.now() - from) / 60_000).toFixed(1);
        const seconds = (milliseconds: number) => `${(milliseconds / 1000).toFixed(1)} s`;
        print(
          `  ${minute} min, ${acknowledged().toLocaleString('en')} objects: ${fault.name}, ${seconds(lasted)}; every lane moves after ${seconds(recovery)}`,
        );
        if (recovery === Number.POSITIVE_INFINITY) break;
      }
      for (const [name, recoveries] of struck) {
        const [median, longest] = [quantile(recoveries, 0.5), Math.max(...recoveries)];
        scene.notes.push(
          `${recoveries.length} × ${name}: every lane moves after ${(median / 1000).toFixed(1)} s (median), ${(longest / 1000).toFixed(1)} s (longest)`,
        );
      }
      scene.figure('acknowledged objects', acknowledged(), '', { atLeast: objects });
      scene.figure('faults', scene.recoveries.length, '', { atLeast: 1 });
      scene.figure('longest until every lane moves again', Math.max(...scene.recoveries) / 1000, 's', {
        atMost: 30,
      });
      await scene.waitUntilApplied(fleet, { load, flood, circles, deadline: 300_000, growth: 300 });
    },
  };
}
