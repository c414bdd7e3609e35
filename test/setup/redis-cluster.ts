import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { freePort } from '../../src/embedded/address.ts';
import { Cluster, Redis } from '../../src/queue/bullmq.ts';
import { startRedis, type TestRedis } from './redis.ts';
import { waitUntil } from './wait-until.ts';

/** Milliseconds of silence after which a node counts as gone. */
const NODE_TIMEOUT = 1000;

/** A server of another make, as Valkey's: its file. */
const SERVER = process.env.TEST_REDIS_SERVER;

export interface TestCluster {
  /** Primaries first, as they were made; each keeps its port when it is started again. */
  nodes: TestRedis[];
  /** What the processes are given. */
  env: { REDIS_URL: string; REDIS_CLUSTER_NODES: string };
  /** An operator's own client. */
  operator: Cluster;
  /** The index in `nodes` of the primary that has a key now. */
  primaryOf(key: string): Promise<number>;
  /** The index of a replica of that primary. */
  replicaOf(primary: number): Promise<number>;
  /** Asks one node. */
  ask(index: number, ...command: string[]): Promise<unknown>;
  /** Starts a node again that was ended. */
  restart(index: number): Promise<void>;
  /** Resolves when every slot is served and each primary has its replicas connected. */
  settled(): Promise<void>;
  stop(): Promise<void>;
}

/** The key of the lanes by which tests ask where they are. */
export const LANES_KEY = '{penstock}:mark';

/** A Redis Cluster on loopback, each node as production needs it. */
export async function startRedisCluster({ primaries = 3, replicas = 0 } = {}): Promise<TestCluster> {
  const count = primaries * (1 + replicas);
  const buses = new Map<number, number>();
  async function startNode(before?: TestRedis): Promise<TestRedis> {
    const bus = (before && buses.get(before.port)) ?? (await freePort());
    const node = await startRedis({
      ...(before && { port: before.port, dir: before.dir }),
      ...(SERVER && { server: SERVER }),
      args: [
        ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT)],
        ...['--cluster-port', String(bus), '--cluster-allow-replica-migration', 'no'],
        ...['--repl-diskless-sync-delay', '0'],
      ],
    });
    buses.set(node.port, bus);
    return node;
  }

  const nodes = await Promise.all(Array.from({ length: count }, () => startNode()));
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  await promisify(execFile)('redis-cli', [
    ...['--cluster', 'create', ...addresses],
    ...['--cluster-replicas', String(replicas), '--cluster-yes'],
  ]);

  const operator = new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    { slotsRefreshInterval: 500 },
  );
  operator.on('error', () => {});

  async function ask(index: number, ...[name, ...given]: string[]): Promise<unknown> {
    const redis = new Redis(nodes[index]!.url, { maxRetriesPerRequest: 0, commandTimeout: 2000 });
    redis.on('error', () => {});
    try {
      return await redis.call(name!, ...given);
    } finally {
      redis.disconnect();
    }
  }

  const portOf = (line: string) => Number(/:(\d+)@/.exec(line)?.[1]);
  /** What the first node that answers knows of all. */
  async function lines(): Promise<string[]> {
    for (const index of nodes.keys()) {
      const told = await ask(index, 'CLUSTER', 'NODES').catch(() => undefined);
      if (told) return String(told).trim().split('\n');
    }
    throw new Error('no node answers');
  }
  const indexOf = (line: string | undefined) => nodes.findIndex(({ port }) => port === portOf(line ?? ''));

  const cluster: TestCluster = {
    nodes,
    env: { REDIS_URL: 'redis://cluster', REDIS_CLUSTER_NODES: addresses.slice(0, primaries).join(',') },
    operator,
    ask,
    async primaryOf(key) {
      const slot = Number(await operator.cluster('KEYSLOT', key));
      const serves = (line: string) =>
        line
          .split(' ')
          .slice(8)
          .some((range) => {
            const [from, to = from] = range.split('-').map(Number);
            return slot >= from! && slot <= to!;
          });
      return indexOf((await lines()).find(serves));
    },
    async replicaOf(primary) {
      const all = await lines();
      const { port } = nodes[primary]!;
      const [id] = all.find((line) => portOf(line) === port)!.split(' ');
      return indexOf(all.find((line) => line.split(' ')[3] === id && !/fail/.test(line.split(' ')[2]!)));
    },
    async restart(index) {
      nodes[index] = await startNode(nodes[index]);
    },
    settled: () =>
      waitUntil(
        async () => {
          const told = await Promise.all(nodes.map((_, index) => ask(index, 'CLUSTER', 'INFO')));
          if (!told.every((text) => /cluster_state:ok/.test(String(text)))) return false;
          const roles = await Promise.all(nodes.map((_, index) => ask(index, 'INFO', 'replication')));
          return roles.every((text) =>
            /role:master/.test(String(text))
              ? Number(/connected_slaves:(\d+)/.exec(String(text))?.[1]) === replicas
              : /master_link_status:up/.test(String(text)),
          );
        },
        { what: 'the cluster to settle', deadline: 60_000 },
      ).then(() => {}),
    async stop() {
      operator.disconnect();
      await Promise.all(nodes.map((node) => node.kill()));
    },
  };
  await cluster.settled();
  return cluster;
}
