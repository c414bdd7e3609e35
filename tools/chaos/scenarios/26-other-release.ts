import { v7 as uuidv7 } from 'uuid';
import { readConfig } from '../../../src/platform/config.ts';
import { openQueue } from '../../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../../src/queue/connection.ts';
import { laneName } from '../../../src/queue/lanes.ts';
import type { Fleet } from '../../../test/setup/fleet.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

const TIME = '2026-01-02T03:04:05.000Z';

export const otherRelease: Scenario = {
  number: 26,
  fault: 'jobs of another version in the queue at upgrade',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene);
    const { id } = await createWorkspace(fleet.pool, 'upgraded');
    const requests = (count: number) => [
      { request_id: uuidv7(), workspace_id: id, accepted_at: TIME, count },
    ];
    const event = (members: object) => ({
      id: uuidv7(),
      kind: 'events',
      index: 0,
      create: true,
      identifier: { external_id: 'ann' },
      name: 'seen',
      time: TIME,
      ...members,
    });
    const jobs: unknown[] = [
      // A known object with members of a later release.
      { requests: requests(2), objects: [event({}), event({ channel: 'app' })], trace: 'later' },
      // Unknown objects alongside a known one.
      {
        requests: requests(3),
        objects: [event({ kind: 'visits' }), event({}), event({ identifier: { device: 'x' } })],
      },
      // Jobs with another structure.
      { batches: [{ rows: [1, 2] }] },
      'envelope',
    ];
    scene.say('adding jobs of other versions');
    await addToLane(fleet, jobs);
    const count = async () => {
      const { rows } = await fleet.pool.query(
        `select (select count(*)::integer from events where workspace_id = $1) as applied,
          (select count(*)::integer from dead_letters) as dead`,
        [id],
      );
      return rows[0] as { applied: number; dead: number };
    };
    await waitUntil(
      async () => {
        const { applied, dead } = await count();
        scene.say(`${applied} applied, ${dead} dead letters`);
        return applied >= 3 && dead >= 4;
      },
      { what: 'the jobs to be applied or dead letters', deadline: 60_000 },
    );
    const { applied, dead } = await count();
    scene.figure('objects applied', applied, '', { atLeast: 3, atMost: 3 });
    scene.figure('objects and jobs that are dead letters', dead, '', { atLeast: 4, atMost: 4 });
    await fleet.pool.query('delete from dead_letters');
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};

async function addToLane({ env }: Fleet, jobs: unknown[]): Promise<void> {
  const config = readConfig(env);
  const connection = connectProducer(config, config.DATABASE_URL);
  if (connection.redis && connection.redis.status !== 'ready')
    await new Promise((resolve) => connection.redis!.once('ready', resolve));
  const queue = openQueue<unknown>(connection, laneName(0));
  for (const data of jobs) await queue.add('envelope', data, { jobId: uuidv7(), attempts: 1 });
  await queue.close();
  await connection.stop();
}
