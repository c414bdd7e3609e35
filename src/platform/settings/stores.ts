import { integer, processNames, servers, text, visibleAscii } from './define.ts';

const HOSTS = {
  pattern: '^([^\\s,/@]+(\\s*,\\s*[^\\s,/@]+)*)?$',
  rule: 'must be host:port, with several separated by commas',
};

const POSTGRES_URL = {
  pattern: '^(postgres(ql)?://.+)?$',
  rule: 'must start with postgres:// or postgresql://',
};

/** Settings that describe the installation and set its first credentials. */
export const installationSettings = {
  DEPLOYMENT_FORM: text({
    description:
      'The form of this installation. `embedded`: `npm start` runs Postgres in DATA_DIR and keeps an encryption key there, and private networks can be reached. `production`: you run Postgres, and private networks are refused. Empty: `embedded` if DATABASE_URL is empty, otherwise `production`. Set `production` on every server: a process without DATABASE_URL then exits with an error instead of using the embedded defaults.',
    example: 'production',
    readBy: processNames,
    enum: ['', 'embedded', 'production'],
  }),
  DATA_DIR: {
    ...text({
      description:
        'The folder for the embedded Postgres, its address and its encryption key. Files of streams and of segment exports are written below it if STREAM_FOLDERS and SEGMENT_EXPORT_URL are empty.',
      default: '.penstock',
      example: '/var/lib/penstock',
      readBy: processNames,
    }),
    unit: 'path',
  },
  BOOTSTRAP_API_KEY: text({
    description:
      'The first API key of the workspace `default`, with every permission. It is used only when the workspace is created. Empty: a random key is created and printed once.',
    example: 'change-me-to-a-long-random-text',
    readBy: ['release', 'start'],
    toChange:
      'After the workspace exists, a new value has no effect. Use `penstock keys create` and `penstock keys revoke`.',
    // The first 8 characters are stored as plain text, and headers of more than 512 characters are not read.
    ...visibleAscii(16, 500),
  }),
  BOOTSTRAP_SCIM_TOKEN: text({
    description:
      'The first SCIM token of the company `default`. It is used only if that company never had a token. Set BOOTSTRAP_SCIM_ORIGIN as well.',
    example: 'change-me-to-a-long-random-text',
    readBy: ['release', 'start'],
    toChange:
      'After the company has had a token, a new value has no effect. Use `penstock scim-tokens rotate`.',
    ...visibleAscii(16, 500),
  }),
  BOOTSTRAP_SCIM_ORIGIN: text({
    description:
      'The value that requests with BOOTSTRAP_SCIM_TOKEN must send in the header X-Request-Origin. Set both settings or neither.',
    example: 'https://idp.example.com',
    readBy: ['release', 'start'],
    toChange:
      'After the company has had a token, a new value has no effect. Use `penstock scim-tokens issue`.',
    ...visibleAscii(1, 255),
  }),
} as const;

/** Settings of Postgres. */
export const postgresSettings = {
  DATABASE_URL: text({
    description:
      'The address of Postgres 14 or newer. Empty: `npm start` runs an embedded Postgres in DATA_DIR.',
    example: 'postgresql://penstock:secret@db.example.com:5432/penstock?sslmode=verify-full',
    readBy: processNames,
    ...POSTGRES_URL,
  }),
  DATABASE_DIRECT_URL: text({
    description:
      'The address of Postgres itself. Set it if DATABASE_URL leads to a connection pooler in transaction mode: migrations, LISTEN and the queue in Postgres need a direct connection (see docs/connection-poolers.md). Empty: DATABASE_URL is used.',
    example: 'postgresql://penstock:secret@db.example.com:5432/penstock',
    readBy: processNames,
    ...POSTGRES_URL,
  }),
  DATABASE_POOLING: text({
    description:
      'How the server of DATABASE_URL assigns sessions: `none` (no pooler), `session` or `transaction`, like pool_mode of PgBouncer. Empty: each process detects it when it connects. Set it if the detection is wrong.',
    example: 'transaction',
    readBy: processNames,
    enum: ['', 'none', 'session', 'transaction'],
  }),
  DATABASE_POOL_SIZE: integer({
    description:
      'The maximum number of Postgres connections in each pool. A process has several pools (see docs/postgres-connections.md). Idle connections are closed after 20 seconds. Lower it if Postgres runs out of connections.',
    ...{ default: 5, minimum: 1, maximum: 500, unit: 'connections' },
    example: '10',
    readBy: [...servers, 'start'],
  }),
  DATABASE_MAX_CONNECTIONS: integer({
    description:
      'The maximum number of Postgres connections of all processes that `npm start` starts. It lowers DATABASE_POOL_SIZE until they fit, and exits with the required number if they cannot fit.',
    ...{ default: 100, minimum: 13, maximum: 10_000, unit: 'connections' },
    example: '60',
    readBy: ['start'],
  }),
  DISTRIBUTE: text({
    description:
      'Set `citus` to distribute the tables by workspace over the nodes of the Citus cluster of DATABASE_URL. A distributed table stays distributed when you remove the setting. Empty: one Postgres.',
    example: 'citus',
    readBy: ['release'],
    toChange:
      'Stop every process, and run `release` with the new value (see docs/scale-citus.md). No command removes the distribution.',
    enum: ['', 'citus'],
  }),
} as const;

/** Settings of Redis and of the queue. */
export const queueSettings = {
  REDIS_URL: text({
    description:
      'The address of Redis or Valkey for the queue and the rate limits. Configure that server with `appendonly yes`, `appendfsync always` and `maxmemory-policy noeviction`. Empty: the queue is in Postgres, and each web process counts the rate limits by itself.',
    example: 'rediss://penstock:secret@redis.example.com:6379',
    readBy: [...servers, 'cli', 'start'],
    pattern: '^(rediss?://.+)?$',
    rule: 'must start with redis:// or rediss://',
  }),
  QUEUE: text({
    description:
      'The store that holds accepted objects until they are applied: `redis` or `postgres`. Empty: Redis if REDIS_URL is set, otherwise Postgres. With `postgres` and a REDIS_URL, Redis holds only the rate limits. Set `postgres` if you cannot afford to lose queued objects together with Redis. All processes and the admin command need the same value.',
    example: 'postgres',
    readBy: processNames,
    pattern: '^(redis|postgres)?$',
    rule: 'must be redis or postgres',
  }),
  REDIS_SENTINELS: text({
    description:
      'The Sentinels that know the primary, as host:port separated by commas. REDIS_URL then gives user, password, database and TLS, and its host and port are not used.',
    example: 'sentinel-1:26379,sentinel-2:26379,sentinel-3:26379',
    readBy: [...servers, 'cli', 'start'],
    ...HOSTS,
  }),
  REDIS_SENTINEL_NAME: text({
    description: 'The name of the primary in the configuration of REDIS_SENTINELS.',
    default: 'mymaster',
    example: 'penstock',
    readBy: [...servers, 'cli', 'start'],
  }),
  REDIS_CLUSTER_NODES: text({
    description:
      'Some nodes of a Redis or Valkey Cluster, as host:port separated by commas. The other nodes are discovered. REDIS_URL then gives user, password and TLS, and its host and port are not used. Empty: REDIS_URL is a single server.',
    example: 'redis-1:6379,redis-2:6379,redis-3:6379',
    readBy: [...servers, 'cli', 'start'],
    ...HOSTS,
  }),
  REDIS_WAIT_REPLICAS: integer({
    description:
      'The number of Redis replicas that must confirm an accepted object (WAIT, and WAITAOF where the server has it) before the request is answered, so that a failover loses no accepted object. If fewer replicas confirm within half of QUEUE_TIMEOUT_MS, the request is answered with 503. 0: the disk of the primary is enough.',
    ...{ default: 0, minimum: 0, maximum: 10, unit: 'replicas' },
    example: '1',
    readBy: [...servers, 'cli'],
  }),
  LANES: integer({
    description:
      'The number of lanes. A lane is an ordered queue that one worker at a time applies. The identifier of an object selects its lane. At most LANES times SHARDS workers are busy at the same time. The first process of an installation fixes the number, and a process with another number does not start; `penstock queue set-lanes` changes it. 1 keeps one order for all operations of a workspace, and is fastest for small requests.',
    ...{ default: 1, minimum: 1, maximum: 256, unit: 'lanes' },
    example: '8',
    readBy: [...servers, 'cli', 'start'],
    toChange:
      'Stop every process, run `penstock queue set-lanes`, and start the processes with the new value (see docs/lanes.md).',
  }),
  SHARDS: integer({
    description:
      'The number of shards. A shard is a set of LANES lanes in one slot of a Redis Cluster, and each workspace belongs to one shard, so that several primaries share the work. Needs the queue in Redis. The first process of an installation fixes the number, as with LANES.',
    ...{ default: 1, minimum: 1, maximum: 64, unit: 'shards' },
    example: '4',
    readBy: [...servers, 'cli', 'start'],
    toChange:
      'Stop every process, run `penstock queue set-lanes` with `--shards`, and start the processes with the new value (see docs/scale-shards.md).',
  }),
  MAX_ENVELOPE_OBJECTS: integer({
    description:
      'The maximum number of objects in one job of the queue. Larger jobs cost less per object and delay the objects behind them longer.',
    ...{ default: 2000, minimum: 1, maximum: 10_000, unit: 'objects' },
    example: '500',
    readBy: ['web', 'sync', 'cli'],
  }),
  QUEUE_TIMEOUT_MS: integer({
    description:
      'The maximum time that the queue can take to store accepted objects. After this time, the request is answered with 503.',
    ...{ default: 700, minimum: 50, maximum: 60_000, unit: 'ms' },
    example: '2000',
    readBy: servers,
  }),
  LOCK_DURATION_MS: integer({
    description:
      'The time after which another process takes over the jobs of a worker or sync process that no longer responds. With the queue in Redis, its lanes are taken over after two fifths of this time, and at least after one second. Raise it if workers lose their jobs while they are only slow.',
    ...{ default: 5000, minimum: 500, maximum: 600_000, unit: 'ms' },
    example: '15000',
    readBy: servers,
  }),
  STALLED_INTERVAL_MS: integer({
    description: 'The interval at which workers and sync processes check for jobs whose lock has expired.',
    ...{ default: 1000, minimum: 100, maximum: 600_000, unit: 'ms' },
    example: '5000',
    readBy: ['worker', 'sync'],
  }),
} as const;
