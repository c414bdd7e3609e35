import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Redis } from '../../src/queue/ioredis.ts';
import { createPartition } from './cut-off.ts';
import { leasePort } from './ports.ts';
import { startRedis, type TestRedis } from './redis.ts';
import { waitUntil } from './wait-until.ts';

/** Milliseconds of silence after which a node counts as gone. */
const NODE_TIMEOUT = 1000;

/** Executable of another server, for instance Valkey. */
const SERVER = process.env.TEST_REDIS_SERVER;

/** Key by which tests locate the lanes. */
export const LANES_KEY = '{penstock}:mark';

export interface TestCluster {
  /** Nodes; each keeps its ports in a restart. */
  nodes: TestRedis[];
  /** Environment for processes. */
  env: { REDIS_URL: string; REDIS_CLUSTER_NODES: string };
  /** Returns the index in `nodes` of the primary that has a key now, as most of the nodes see it. */
  primaryOf(key: string): Promise<number>;
  /** Returns the index of a replica of that primary. */
  replicaOf(primary: number): Promise<number>;
  /** Returns the index of another primary. */
  otherPrimary(primary: number): Promise<number>;
  /** Checks whether all nodes that respond know that a node has gone. */
  agreesOnLossOf(index: number): Promise<boolean>;
  /** Asks one node. */
  call(index: number, ...command: (string | number)[]): Promise<unknown>;
  /** Moves the slot of a key to another primary, key by key, as resharding does. */
  moveSlot(key: string, to: number): Promise<void>;
  /** Cuts a node off from all others, but not from clients; requires `canBeCutOff`. */
  cutOff(index: number): void;
  heal(): void;
  /** Restarts a node that was ended. */
  restart(index: number): Promise<void>;
  /** Resolves when every slot is served and each primary has its replicas connected. */
  waitUntilStable(): Promise<void>;
  stop(): Promise<void>;
}

interface ClusterOptions {
  primaries?: number;
  /** Replicas per primary. */
  replicas?: number;
  canBeCutOff?: boolean;
  /** Further settings of every node, which outlive its restart. */
  args?: string[];
}

/** A node as another one sees it. */
interface Seen {
  id: string;
  port: number;
  flags: string;
  primary: string;
  ranges: [number, number][];
}

/** Starts a Redis Cluster on loopback, each node with production settings. */
export async function startRedisCluster({
  primaries = 3,
  replicas = 0,
  canBeCutOff = false,
  args = [],
}: ClusterOptions = {}): Promise<TestCluster> {
  const partition = createPartition();
  const settings: string[][] = [];
  /** Ports by which other nodes and clients reach each node. */
  const announced: number[] = [];

  async function startNode(index: number, before?: TestRedis): Promise<TestRedis> {
    const port = before?.port ?? (await leasePort());
    if (!before) settings[index] = await settingsOf(index, port);
    return startRedis({
      port,
      ...(before && { dir: before.dir }),
      ...(SERVER && { server: SERVER }),
      args: settings[index]!,
    });
  }

  async function settingsOf(index: number, port: number): Promise<string[]> {
    const bus = await leasePort();
    announced[index] = canBeCutOff ? await partition.portOf(index, port) : port;
    return [
      ...['--cluster-enabled', 'yes', '--cluster-node-timeout', String(NODE_TIMEOUT)],
      ...['--cluster-port', String(bus), '--cluster-allow-replica-migration', 'no'],
      ...['--repl-diskless-sync-delay', '0'],
      ...args,
      ...(canBeCutOff
        ? [
            ...['--bind-source-addr', partition.sourceOf(index)],
            ...['--cluster-announce-ip', '127.0.0.1', '--cluster-announce-port', String(announced[index])],
            ...['--cluster-announce-bus-port', String(await partition.portOf(index, bus))],
          ]
        : []),
    ];
  }

  const count = primaries * (1 + replicas);
  const nodes = await Promise.all(Array.from({ length: count }, (_, index) => startNode(index)));
  const addresses = announced.map((port) => `127.0.0.1:${port}`);
  await promisify(execFile)('redis-cli', [
    ...['--cluster', 'create', ...addresses],
    ...['--cluster-replicas', String(replicas), '--cluster-yes'],
  ]);

  async function call(index: number, ...[name, ...given]: (string | number)[]): Promise<unknown> {
    const redis = new Redis(nodes[index]!.url, { maxRetriesPerRequest: 0, commandTimeout: 5000 });
    redis.on('error', () => {});
    try {
      return await redis.call(String(name), ...given);
    } finally {
      redis.disconnect();
    }
  }

  async function seenBy(index: number): Promise<Seen[]> {
    const text = String(await call(index, 'CLUSTER', 'NODES'));
    return text
      .trim()
      .split('\n')
      .map((line) => {
        const [id, address, flags, primary, , , , , ...slots] = line.split(' ');
        const ranges = slots
          .filter((slot) => !slot.startsWith('['))
          .map((range): [number, number] => {
            const [from, to = from] = range.split('-').map(Number);
            return [from!, to!];
          });
        return {
          id: id!,
          port: Number(/:(\d+)@/.exec(address!)![1]),
          flags: flags!,
          primary: primary!,
          ranges,
        };
      });
  }

  const indexOf = ({ port } = { port: 0 }) => announced.indexOf(port);

  /** Returns the answer of the majority of the nodes that respond. */
  async function byMost(find: (seen: Seen[]) => number): Promise<number> {
    const votes = new Map<number, number>();
    for (const index of nodes.keys()) {
      const seen = await seenBy(index).catch(() => undefined);
      if (seen) votes.set(find(seen), (votes.get(find(seen)) ?? 0) + 1);
    }
    return [...votes].sort(([, one], [, other]) => other - one)[0]?.[0] ?? -1;
  }

  const slotOf = async (key: string) => {
    const slots = await Promise.any(nodes.map((_, index) => call(index, 'CLUSTER', 'KEYSLOT', key)));
    return Number(slots);
  };

  const cluster: TestCluster = {
    nodes,
    env: { REDIS_URL: 'redis://any', REDIS_CLUSTER_NODES: addresses.slice(0, primaries).join(',') },
    call,
    async primaryOf(key) {
      const slot = await slotOf(key);
      return byMost((seen) =>
        indexOf(seen.find(({ ranges }) => ranges.some(([from, to]) => slot >= from && slot <= to))),
      );
    },
    replicaOf: (primary) =>
      byMost((seen) => {
        const of = seen.find(({ port }) => port === announced[primary]);
        return indexOf(seen.find((one) => one.primary === of?.id && !one.flags.includes('fail')));
      }),
    otherPrimary: (primary) =>
      byMost((seen) =>
        indexOf(seen.find(({ port, ranges }) => port !== announced[primary] && ranges.length > 0)),
      ),
    async agreesOnLossOf(index) {
      const seen = await Promise.all(nodes.map((_, other) => seenBy(other).catch(() => [])));
      return seen
        .flat()
        .filter(({ port }) => port === announced[index])
        .every(({ flags }) => /fail(?!\?)/.test(flags));
    },
    async moveSlot(key, to) {
      const slot = await slotOf(key);
      const from = await cluster.primaryOf(key);
      const seen = await seenBy(from);
      const idOf = (index: number) => seen.find(({ port }) => port === announced[index])!.id;
      await call(to, 'CLUSTER', 'SETSLOT', slot, 'IMPORTING', idOf(from));
      await call(from, 'CLUSTER', 'SETSLOT', slot, 'MIGRATING', idOf(to));
      for (;;) {
        const keys = (await call(from, 'CLUSTER', 'GETKEYSINSLOT', slot, 10)) as string[];
        if (keys.length === 0) break;
        await call(from, 'MIGRATE', '127.0.0.1', announced[to]!, '', 0, 4000, 'KEYS', ...keys);
      }
      for (const index of [to, from]) await call(index, 'CLUSTER', 'SETSLOT', slot, 'NODE', idOf(to));
    },
    cutOff: partition.cutOff,
    heal: partition.heal,
    async restart(index) {
      nodes[index] = await startNode(index, nodes[index]);
    },
    waitUntilStable: () =>
      waitUntil(
        async () => {
          const infos = await Promise.all(nodes.map((_, index) => call(index, 'CLUSTER', 'INFO')));
          if (!infos.every((text) => /cluster_state:ok/.test(String(text)))) return false;
          const roles = await Promise.all(nodes.map((_, index) => call(index, 'INFO', 'replication')));
          return roles.every((text) =>
            /role:master/.test(String(text))
              ? Number(/connected_slaves:(\d+)/.exec(String(text))?.[1]) === replicas
              : /master_link_status:up/.test(String(text)),
          );
        },
        { what: 'the cluster to settle', deadline: 60_000 },
      ).then(() => {}),
    async stop() {
      await Promise.all(nodes.map((node) => node.kill()));
    },
  };
  await cluster.waitUntilStable();
  return cluster;
}
