import { everyLaneMoves, type Fleet } from '../../../test/setup/fleet.ts';
import { LANES_KEY, startRedisCluster, type TestCluster } from '../../../test/setup/redis-cluster.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { longest, notUnavailable, requestFor, untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

/** A fault of a cluster. */
interface ClusterFault {
  name: string;
  /** @param knock sends requests to the web processes for the given milliseconds */
  happen(cluster: TestCluster, knock: (milliseconds: number) => Promise<void>): Promise<void>;
}

/**
 * Maximum seconds of a refusal: rate limits and lanes are in different slots, and each is waited for up to
 * QUEUE_TIMEOUT_MS.
 */
const SLOWEST_S = 2;

const lanesAreAt = (cluster: TestCluster, index: number) =>
  waitUntil(async () => (await cluster.primaryOf(LANES_KEY)) === index, {
    what: 'the lanes to be elsewhere',
    deadline: 30_000,
  });

const faults: ClusterFault[] = [
  {
    name: 'kill -9 of the primary that has the lanes',
    async happen(cluster, knock) {
      const primary = await cluster.primaryOf(LANES_KEY);
      const replica = await cluster.replicaOf(primary);
      await cluster.nodes[primary]!.kill();
      await knock(2000);
      await lanesAreAt(cluster, replica);
      // Requests are acknowledged only after the new primary has a replica itself.
      await cluster.restart(primary);
    },
  },
  {
    name: 'CLUSTER FAILOVER',
    async happen(cluster) {
      const replica = await cluster.replicaOf(await cluster.primaryOf(LANES_KEY));
      await cluster.call(replica, 'CLUSTER', 'FAILOVER');
      await lanesAreAt(cluster, replica);
    },
  },
  {
    name: 'the slot of the lanes moves to another primary',
    async happen(cluster) {
      const to = await cluster.otherPrimary(await cluster.primaryOf(LANES_KEY));
      await cluster.moveSlot(LANES_KEY, to);
      await lanesAreAt(cluster, to);
    },
  },
  {
    name: 'the primary of the lanes is cut off with its clients, and its replica takes over',
    async happen(cluster, knock) {
      const primary = await cluster.primaryOf(LANES_KEY);
      const replica = await cluster.replicaOf(primary);
      cluster.cutOff(primary);
      await knock(3000);
      await waitUntil(
        async () => /role:master/.test(String(await cluster.call(replica, 'INFO', 'replication'))),
        { what: 'the majority to have a primary of its own', deadline: 30_000 },
      );
      cluster.heal();
    },
  },
  {
    name: 'kill -9 of all nodes, restarted',
    async happen(cluster, knock) {
      await Promise.all(cluster.nodes.map((node) => node.kill()));
      await knock(1000);
      await Promise.all(cluster.nodes.map((_, index) => cluster.restart(index)));
    },
  },
];

async function runFault(scene: Scene, fault: ClusterFault, { fleet, cluster, knockKey }: Given) {
  scene.say(fault.name);
  let others = 0;
  let slowest = 0;
  await fault.happen(cluster, async (milliseconds) => {
    const answers = (await requestFor(fleet, knockKey, milliseconds)).filter(({ status }) => status !== 201);
    others += notUnavailable(answers).length;
    slowest = Math.max(slowest, longest(answers));
  });
  const from = Date.now();
  await cluster.waitUntilStable();
  const recoveryMs = Date.now() - from;
  await untilAccepted(fleet, knockKey, 60_000);
  await everyLaneMoves(fleet, 60_000);
  const resumed = Date.now() - from - recoveryMs;
  scene.recovered(resumed);
  scene.figure(`${fault.name}: other answers than 201 and 503 with Retry-After`, others, '', { atMost: 0 });
  scene.figure(`${fault.name}: slowest refusal`, slowest / 1000, 's', { atMost: SLOWEST_S });
  scene.figure(`${fault.name}: work resumes after the cluster is stable`, resumed / 1000, 's', {
    atMost: 5,
  });
}

interface Given {
  fleet: Fleet;
  cluster: TestCluster;
  knockKey: string;
}

/**
 * Three primaries and three replicas under load, where writes wait for one replica, so that acknowledged
 * objects are never lost.
 */
export const redisCluster: Scenario = {
  number: 30,
  fault: 'a Redis Cluster: a primary killed, failed over, resharded, cut off, all nodes restarted',
  backends: ['redis'],
  async run(scene) {
    const cluster = await startRedisCluster({ primaries: 3, replicas: 1, canBeCutOff: true });
    const env = { ...cluster.env, REDIS_WAIT_REPLICAS: '1', QUEUE_TIMEOUT_MS: '700' };
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, { redis: cluster.nodes[0], env });
    for (let round = 0; round < scene.choose(3, 1); round++)
      for (const fault of faults) {
        await runFault(scene, fault, { fleet, cluster, knockKey });
        await load.more(100);
      }
    await scene.waitUntilApplied(fleet, { load, circles });
    const odd = load.journal.requestsBut([201, 503]);
    scene.figure('requests of the load with another answer than 201 and 503', odd, '', { atMost: 0 });
    await cluster.stop();
  },
};
