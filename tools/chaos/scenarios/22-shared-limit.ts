import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '../../../test/guarantees/keep-alive-client.ts';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import type { Scenario } from '../scenario.ts';

const WINDOW_SECONDS = 10;
const CONNECTIONS = 64;

export const sharedLimit: Scenario = {
  number: 22,
  fault: '8 edges, 64 connections, one limit',
  backends: ['redis'],
  async run(scene) {
    const burst = scene.choose(600, 200);
    const fleet = await scene.startFleet({ edges: scene.choose(8, 3), workers: 1 });
    const { id, key } = await createWorkspace(fleet.pool, 'limited');
    await fleet.pool.query(
      "insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'users.track', $2, $3)",
      [id, burst, WINDOW_SECONDS],
    );
    const seconds = scene.choose(60, 5);
    const from = performance.now();
    const end = from + seconds * 1000;
    let admitted = 0;
    let refused = 0;
    let others = 0;
    scene.say(`asking for ${seconds} s`);
    await Promise.all(
      Array.from({ length: CONNECTIONS }, async (_, number) => {
        const client = createClient(key);
        for (let turn = number; performance.now() < end; turn++) {
          const { port } = fleet.edges[turn % fleet.edges.length]!;
          const { status } = await client.post(port, '/users/track', {
            attributes: [{ external_id: `user-${number}` }],
          });
          if (status === 201) admitted++;
          else if (status === 429) refused++;
          else others++;
          // The limit is tested, not the speed of refusals.
          if (status === 429) await sleep(50);
        }
        client.close();
      }),
    );
    const took = (performance.now() - from) / 1000;
    const limit = (burst / WINDOW_SECONDS) * took;
    scene.figure('admitted', admitted, 'requests', { atLeast: 0.98 * limit, atMost: limit + burst });
    scene.figure('refused with 429', refused, 'requests', { atLeast: 1 });
    scene.figure('other answers', others, '', { atMost: 0 });
    await scene.waitUntilApplied(fleet, {});
  },
};
