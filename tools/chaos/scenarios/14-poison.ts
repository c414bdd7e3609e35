import { createClient } from '../../../test/guarantees/keep-alive-client.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import { refusePoison } from '../poison.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

const PER_ARRAY = 75;
const TIME = '2026-01-02T03:04:05.000Z';

export const poison: Scenario = {
  number: 14,
  fault: 'one poison object among 225',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene);
    await refusePoison(fleet.pool);
    const { id, key } = await createWorkspace(fleet.pool, 'poisoned');
    const users = Array.from({ length: PER_ARRAY }, (_, user) => ({ external_id: `user-${user}` }));
    const purchase = { product_id: 'tea', currency: 'EUR', price: 1.5, time: TIME };
    const client = createClient(key);
    const { status } = await client.post(fleet.edges[0]!.port, '/users/track', {
      attributes: users.map((user) => ({ ...user, points: { inc: 1 } })),
      events: users.map((user, index) => ({ ...user, name: index === 37 ? 'poison' : 'seen', time: TIME })),
      purchases: users.map((user) => ({ ...user, ...purchase })),
    });
    client.close();
    scene.figure('status of the request', status ?? 0, '', { atLeast: 201, atMost: 201 });
    const count = async () => {
      const { rows } = await fleet.pool.query(
        `select (select coalesce(sum((custom_attributes -> 'points')::integer), 0)::integer from profiles where workspace_id = $1)
              + (select count(*)::integer from events where workspace_id = $1)
              + (select count(*)::integer from purchases where workspace_id = $1) as applied,
          (select count(*)::integer from dead_letters where workspace_id = $1) as reported`,
        [id],
      );
      return rows[0] as { applied: number; reported: number };
    };
    await waitUntil(async () => (await count()).reported > 0, { what: 'the dead letter', deadline: 60_000 });
    await waitUntil(async () => (await count()).applied >= 3 * PER_ARRAY - 1, {
      what: 'its neighbours',
      deadline: 60_000,
    });
    const { applied, reported } = await count();
    const tries = fleet.workers
      .flatMap(({ log }) => log)
      .filter(({ msg }) => /^not applied yet/.test(String(msg))).length;
    scene.figure('applied', applied, 'objects', { atLeast: 224, atMost: 224 });
    scene.figure('dead letters', reported, '', { atLeast: 1, atMost: 1 });
    scene.figure('tries until it was one', tries + 1, '', { atMost: 3 });
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};
