import { count } from '../platform/format.ts';
import { crashLossOf, REFUSES_FOR_OTHERS } from '../queue/redis.ts';
import type { Check, Exceeded } from './check.ts';
import type { Readings, RedisServer } from './readings.ts';

/** Returns a `find` that checks each server with lanes. In a cluster, its name precedes the sentence. */
const ofServers =
  (find: (server: RedisServer, readings: Readings) => Omit<Exceeded, 'subject'> | undefined) =>
  (readings: Readings): Exceeded[] =>
    (readings.machine?.redis?.servers ?? []).flatMap((server) => {
      const exceeded = find(server, readings);
      if (!exceeded) return [];
      const { name } = server;
      return [
        name === undefined
          ? exceeded
          : { ...exceeded, subject: name, sentence: `${name}: ${exceeded.sentence}` },
      ];
    });

const connected = (replicas: number) =>
  `${count(replicas, 'replica')} ${replicas === 1 ? 'is' : 'are'} connected`;

const capitalized = (text: string) => `${text[0]!.toUpperCase()}${text.slice(1)}`;

/** Checks of the Redis servers of the queue: settings, memory, replicas, the cluster, and the lists of the lanes. */
export const redisChecks: readonly Check[] = [
  {
    id: 'redis-evicts',
    group: 'redis',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Accepted objects can be lost, and processes do not start with this policy.',
    firstStep: 'Set maxmemory-policy noeviction.',
    link: '/',
    normal: ({ machine, queue }) =>
      machine?.redis &&
      (queue === 'postgres' ? 'not used: the queue is in Postgres' : 'settings and memory are correct'),
    find: ofServers(({ settings: { evicts } }) =>
      evicts === undefined || evicts === 'noeviction'
        ? undefined
        : { sentence: `maxmemory-policy is ${evicts}: Redis can drop accepted objects.` },
    ),
  },
  {
    id: 'redis-not-durable',
    group: 'redis',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'If Redis crashes, accepted objects that are not applied yet can be lost.',
    firstStep: 'Set appendonly yes and appendfsync always, or set QUEUE=postgres.',
    link: '/',
    find: ofServers(({ settings }) => {
      const crash = crashLossOf(settings);
      return (
        crash && {
          sentence: `${capitalized(crash.loss)}.`,
          firstStep: `${capitalized(crash.advice)}, or set QUEUE=postgres.`,
        }
      );
    }),
  },
  {
    id: 'redis-unlimited',
    group: 'redis',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'The operating system may kill Redis.',
    firstStep: 'Set maxmemory.',
    link: '/',
    find: ofServers(({ maxmemory }) =>
      maxmemory === 0
        ? {
            sentence:
              'maxmemory is not set: a burst can use up the memory of the machine instead of being refused with 503.',
          }
        : undefined,
    ),
  },
  {
    id: 'replicas-missing',
    group: 'replicas',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'No request is accepted.',
    firstStep: 'Restore the replicas, or lower REDIS_WAIT_REPLICAS.',
    link: '/',
    normal({ machine }) {
      const { servers = [], replicasWanted = 0 } = machine?.redis ?? {};
      if (replicasWanted === 0) return undefined;
      return servers.map(({ name, replicas }) => ({
        ...(name !== undefined && { subject: name }),
        sentence: `${name === undefined ? '' : `${name}: `}${connected(replicas)}, and REDIS_WAIT_REPLICAS needs ${replicasWanted}`,
      }));
    },
    find: ofServers(({ replicas }, { machine }) => {
      const { replicasWanted } = machine!.redis!;
      return replicas < replicasWanted
        ? {
            sentence: `REDIS_WAIT_REPLICAS is ${replicasWanted}, and ${connected(replicas)}: no request is accepted.`,
          }
        : undefined;
    }),
  },
  {
    id: 'cluster-down',
    group: 'redis',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Requests are refused with 503, and accepted objects do not take effect.',
    firstStep: 'Run `redis-cli --cluster check`.',
    link: '/',
    find: ({ machine }) =>
      machine?.redis?.cluster?.isServing === false ? [{ sentence: 'The Redis Cluster is down.' }] : [],
  },
  {
    id: 'shards-dependent',
    group: 'redis',
    severity: 'warning',
    scope: 'shard',
    evaluators: ['machine'],
    impact: 'If the primary of one shard is unavailable, requests of all shards are refused with 503.',
    firstStep:
      'Set cluster-require-full-coverage no in the configuration file of every server. A value from CONFIG SET is lost at a restart.',
    link: '/',
    find: ({ machine }) =>
      (machine?.redis?.cluster?.dependent ?? []).map((name) => ({
        subject: name,
        sentence: `${name}: ${REFUSES_FOR_OTHERS}.`,
      })),
  },
  {
    id: 'primary-without-replica',
    group: 'redis',
    severity: 'warning',
    scope: 'shard',
    evaluators: ['machine'],
    impact: 'While the server is unavailable, requests are refused with 503.',
    firstStep: 'Add a replica.',
    link: '/',
    find({ machine }) {
      const { servers = [], cluster } = machine?.redis ?? {};
      if (!cluster) return [];
      return servers
        .filter(({ replicas }) => replicas === 0)
        .map(({ name }) => ({
          subject: name!,
          sentence: `${name} has lanes and no replica: while it is unavailable, no request is accepted${cluster.shards > 1 ? ' for its shards' : ''}.`,
        }));
    },
  },
  {
    id: 'jobs-stray',
    group: 'redis',
    severity: 'critical',
    scope: 'lane',
    evaluators: ['machine'],
    impact: 'These jobs do not take effect.',
    firstStep: 'See "Damage on disk" in docs/runbook.md.',
    link: '/queues',
    find({ machine }) {
      const { strayJobs = [] } = machine?.redis ?? {};
      if (strayJobs.length === 0) return [];
      const isOne = strayJobs.length === 1;
      return [
        {
          sentence: `${count(strayJobs.length, 'job')} ${isOne ? 'is' : 'are'} in no list of the lane, so no worker is handed ${isOne ? 'it' : 'them'}, for example ${strayJobs[0]}.`,
        },
      ];
    },
  },
];
