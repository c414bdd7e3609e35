/**
 * Measures how throughput grows with the size of an installation. Sends traffic of many workspaces to fleets of several
 * sizes. Each fleet has its own database, Redis and processes. It is first measured without faults, while it has a backlog.
 * Then workers are killed under the same traffic. At the end, the stored data is compared with the responses that clients
 * got (invariants I1 to I5 of `npm run chaos`).
 *
 *   npm run scale                                        1 to 8 workers, then 1 to 1,000 workspaces
 *   npm run scale -- --workers 1,2 --workspaces 1,100    only these sizes
 *   CITUS_URL=postgres://… npm run scale -- --citus      on a Citus with coordinator and nodes on this machine
 *   npm run scale -- --cluster --edges 4 --workers 8 --lanes 16 --shards 1,4,16 --workspaces 16
 *
 * Prints objects per second, and microseconds of processor time per object. Exits with 1 if an invariant is violated.
 */

import { endLeftBehind } from '../../test/setup/left-behind.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { createDistributedDatabase } from '../../test/store/distributed-database.ts';
import { type Arena, openArena } from '../chaos/arena.ts';
import { createRandom } from '../load/random.ts';
import { readOptions, type ScaleOptions } from './options.ts';
import { describePoints, measurePoint, type Point, type Shape } from './point.ts';

/** Returns the shapes to measure, each once: one dimension varies, while the others have their first value. */
function shapesOf({ workers, lanes, shards, workspaces, edges, cluster }: ScaleOptions): Shape[] {
  const first: Shape = {
    ...{ workers: workers[0]!, lanes: lanes[0]!, shards: shards[0]!, workspaces: workspaces[0]! },
    ...{ edges, cluster },
  };
  const shapes = [
    ...workers.map((value) => ({ ...first, workers: value })),
    ...lanes.map((value) => ({ ...first, lanes: value })),
    ...shards.map((value) => ({ ...first, shards: value })),
    ...workspaces.map((value) => ({ ...first, workspaces: value })),
  ];
  return [...new Map(shapes.map((shape) => [JSON.stringify(shape), shape])).values()];
}

/** Creates distributed databases on the Citus of CITUS_URL. */
const openCitus = (): Arena => ({
  createDatabase: async () => ({ url: await createDistributedDatabase(), drop: endLeftBehind }),
  stop: endLeftBehind,
});

async function main(): Promise<void> {
  const options = readOptions(process.argv);
  const random = createRandom(options.seed);
  const points: Point[] = [];
  const arena = options.citus ? openCitus() : await openArena(options.postgres);
  try {
    for (const shape of shapesOf(options)) {
      const { url, drop } = await arena.createDatabase();
      const point = await measurePoint(shape, { ...options, url, random });
      await drop();
      points.push(point);
      process.stdout.write(describePoints([point]));
      for (const example of point.examples) process.stdout.write(`    ${example.slice(0, 400)}\n`);
    }
  } finally {
    await arena.stop();
  }
  process.stdout.write(`\n${describePoints(points)}`);
  if (points.some(({ violations }) => Object.keys(violations).length > 0)) process.exitCode = 1;
}

await runCommand(main);
