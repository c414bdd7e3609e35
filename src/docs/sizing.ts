/** Traffic and settings for which an installation is sized. */
export interface Traffic {
  /** Objects per second at the peak. */
  objectsPerSecond: number;
  /** Percentage of the objects that arrive alone in a request. The others arrive 75 per request. */
  singlePercent: number;
  storedUsers: number;
  queue: 'redis' | 'postgres';
  /** LEDGER_DAYS. */
  ledgerDays: number;
}

/** Numbers of processes and servers, and sizes in bytes. Values with fractions are not rounded. */
export interface Sizing {
  /** Busy cores of each program at the planned share of its capacity. */
  cores: { web: number; worker: number; postgres: number; redis: number };
  webProcesses: number;
  workerProcesses: number;
  shards: number;
  /** Lanes over all shards. */
  lanes: number;
  /** Postgres servers, each with an equal part of the cores. */
  postgresServers: number;
  redisServers: number;
  /** Disk for the stored users with their indexes. */
  usersBytes: number;
  /** Disk for the ledger, if the peak lasted for all of its days. */
  ledgerBytes: number;
  /** Growth of the other tables in a day, if the peak lasted all day. */
  growthBytesPerDay: number;
  /** Memory of Redis for the objects that wait during one minute without Postgres. */
  redisBytes: number;
  /** Limits of Penstock that the traffic exceeds, as sentences. */
  warnings: string[];
}

/** Microseconds of processor time per object. docs/evidence/sizing.md has the source of each value. */
export const MICROSECONDS = {
  redis: {
    large: { web: 7.4, worker: 8.5, postgres: 18.7, redis: 1.6 },
    single: { web: 93, worker: 35, postgres: 41, redis: 7.2 },
  },
  postgres: {
    large: { web: 8.7, worker: 10.2, postgres: 31, redis: 0 },
    single: { web: 70.4, worker: 24.1, postgres: 70.1, redis: 0 },
  },
} as const;

/** Planned share of the capacity. The rest is for peaks and maintenance. */
const PLANNED = 0.6;

/** Objects per second that one lane applies at most, and the processor time per object at which this was measured. */
const LANE = { objectsPerSecond: 40_000, microseconds: 27.2 };

/** Transactions that a worker process runs at once. */
const TRANSACTIONS = 2;

/** Objects per second of one Postgres at most: 200 MB/s of write-ahead log, 650 bytes per object. */
const POSTGRES_OBJECTS_PER_SECOND = 300_000;

/** Processor time of an object in Citus over that in one Postgres. */
const CITUS_FACTOR = 2;

const OBJECTS_PER_LARGE_REQUEST = 75;
const BYTES = { user: 380, ledgerRow: 125, growthPerObject: 350, waitingObject: 308 };
const SECONDS_PER_DAY = 86_400;
const MAX_LANES = 256;

/** Estimates the processes, servers, disk and memory for the traffic, with the formulas of docs/evidence/sizing.md. */
export function sizeInstallation(traffic: Traffic): Sizing {
  const { objectsPerSecond, queue, storedUsers, ledgerDays } = traffic;
  const single = traffic.singlePercent / 100;
  const costs = MICROSECONDS[queue];
  const postgresServers = atLeastOne(objectsPerSecond / POSTGRES_OBJECTS_PER_SECOND);
  const costOf = (program: 'web' | 'worker' | 'postgres' | 'redis') =>
    (costs.large[program] * (1 - single) + costs.single[program] * single) *
    (program === 'postgres' && postgresServers > 1 ? CITUS_FACTOR : 1);
  const coresOf = (microseconds: number) => (objectsPerSecond * microseconds) / 1e6 / PLANNED;

  const cores = {
    web: coresOf(costOf('web')),
    worker: coresOf(costOf('worker')),
    postgres: coresOf(costOf('postgres')),
    redis: coresOf(costOf('redis')),
  };
  // An object needs its worker and its Postgres one after the other.
  const microsecondsInTransaction = costOf('worker') + costOf('postgres');
  const transactions = coresOf(microsecondsInTransaction);
  const laneObjectsPerSecond =
    (PLANNED * LANE.objectsPerSecond * LANE.microseconds) / microsecondsInTransaction;
  const shards = queue === 'redis' ? Math.max(postgresServers, atLeastOne(cores.redis)) : 1;
  const lanes = shards * atLeastOne(objectsPerSecond / laneObjectsPerSecond / shards);
  const requestsPerSecond = objectsPerSecond * (single + (1 - single) / OBJECTS_PER_LARGE_REQUEST);

  const warnings: string[] = [];
  if (lanes > MAX_LANES)
    warnings.push(
      `An installation has at most ${MAX_LANES} lanes. Send larger requests, or use several installations.`,
    );
  if (queue === 'postgres' && postgresServers > 1)
    warnings.push('The queue in Postgres has one shard on one server. Use Redis for this traffic.');
  else if (postgresServers > 1)
    warnings.push(
      'One Postgres does not write this much log. Use Citus, and several workspaces: each workspace stays on one server.',
    );
  return {
    cores,
    webProcesses: atLeastOne(cores.web),
    workerProcesses: atLeastOne(transactions / TRANSACTIONS),
    shards,
    lanes,
    postgresServers,
    redisServers: queue === 'redis' ? shards : 0,
    usersBytes: storedUsers * BYTES.user,
    ledgerBytes: requestsPerSecond * SECONDS_PER_DAY * ledgerDays * BYTES.ledgerRow,
    growthBytesPerDay: objectsPerSecond * SECONDS_PER_DAY * BYTES.growthPerObject,
    redisBytes: queue === 'redis' ? objectsPerSecond * 60 * BYTES.waitingObject : 0,
    warnings,
  };
}

const atLeastOne = (count: number) => Math.max(1, Math.ceil(count));
