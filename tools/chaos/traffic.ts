import type { Fleet, FleetOptions } from '../../test/setup/fleet.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import { type Circles, startCircles } from './load/circles.ts';
import { type Load, type LoadOptions, startLoad } from './load/load.ts';
import type { Scene } from './scene.ts';

export interface Traffic {
  fleet: Fleet;
  load: Load;
  circles: Circles;
  /** API key of a workspace that is not compared. */
  knockKey: string;
}

/**
 * Objects per second in the short form. Batches overlap at this rate, and the cores, which are shared with
 * other tests, have capacity left for the processes that are started and killed.
 */
const SHORT_RATE = 300;

interface TrafficOptions extends LoadOptions {
  /** Milliseconds between two requests of each client that sends identity operations. */
  identityPause?: number;
}

/** Starts a fleet under load and warms it up, as most scenarios begin. */
export async function beginTraffic(
  scene: Scene,
  fleetOptions: FleetOptions & { url?: string } = {},
  { identityPause = scene.choose(0, 60), ...loadOptions }: TrafficOptions = {},
): Promise<Traffic> {
  const fleet = await scene.startFleet(fleetOptions);
  const load = startLoad(fleet, {
    maxUnapplied: scene.choose(8000, 1000),
    rate: scene.choose(Number.POSITIVE_INFINITY, SHORT_RATE),
    ...loadOptions,
  });
  const circles = await startCircles(fleet, { seed: scene.seed, pause: identityPause });
  const { key: knockKey } = await createWorkspace(fleet.pool, 'knocks');
  scene.say('warming up');
  await load.more(scene.choose(5000, 200));
  scene.noteMemory(fleet);
  return { fleet, load, circles, knockKey };
}

/** Seconds for measuring full load. */
const CALIBRATION = 5;

/** Measures full load, then sends a share of it. @returns objects per second at full load */
export async function throttle(scene: Scene, { load }: Traffic, share: number): Promise<number> {
  scene.say('measuring full load');
  const [before, from] = [load.journal.acknowledged, performance.now()];
  await new Promise((resolve) => setTimeout(resolve, CALIBRATION * 1000));
  const full = (load.journal.acknowledged - before) / ((performance.now() - from) / 1000);
  load.change({ rate: full * share });
  scene.notes.push(`full load: ${Math.round(full)} objects/s here and now; sent at ${share * 100} % of it`);
  return full;
}
