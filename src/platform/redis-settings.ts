/** The settings of Redis: part of `settings`, as whose documentation they are written. */
export const redisSettings = {
  REDIS_URL: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Redis or Valkey for the queue and the rate limits; empty: both live in Postgres and in the web process.',
    pattern: '^(rediss?://.+)?$',
    rule: 'must start with redis:// or rediss://',
  },
  QUEUE: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Where accepted objects wait: redis or postgres; empty: in Redis where REDIS_URL is set, else in Postgres. With postgres beside REDIS_URL, Redis holds the rate limits alone. Equal on every process and for the admin command.',
    pattern: '^(redis|postgres)?$',
    rule: 'must be redis or postgres',
  },
  REDIS_SENTINELS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Sentinels that know where the primary of REDIS_URL is, as host:port with commas between; REDIS_URL then gives user, password, database and TLS, and its host and port are not used.',
    pattern: '^([^\\s,/@]+(\\s*,\\s*[^\\s,/@]+)*)?$',
    rule: 'must be host:port, with commas between',
  },
  REDIS_SENTINEL_NAME: {
    type: 'string',
    default: 'mymaster',
    unit: '',
    description: 'Name by which the Sentinels know the primary.',
  },
  REDIS_CLUSTER_NODES: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Some servers of a Redis or Valkey Cluster, as host:port with commas between; they name the others. REDIS_URL then gives user, password and TLS, and its host and port are not used. Empty: REDIS_URL is one server.',
    pattern: '^([^\\s,/@]+(\\s*,\\s*[^\\s,/@]+)*)?$',
    rule: 'must be host:port, with commas between',
  },
  REDIS_WAIT_REPLICAS: {
    type: 'integer',
    default: 0,
    minimum: 0,
    maximum: 10,
    unit: 'replicas',
    description:
      'Replicas of Redis that have to hold what was accepted before it is acknowledged (WAIT), so that a failover loses nothing; with fewer in half of QUEUE_TIMEOUT_MS, requests are answered with 503. 0: the disk of the primary is enough.',
  },
} as const;
