import { reservedNames } from '../schemas/limits.ts';
import {
  bucketSettings,
  consoleSettings,
  integer,
  outgoingSettings,
  port,
  proxySettings,
  redisSettings,
  text,
  tracingSettings,
} from './connection-settings.ts';

/**
 * Every setting, in one place: its name in the environment, default, unit and meaning. config.ts reads
 * them; .env.example and the README's table are generated from here.
 */
export const settings = {
  ...redisSettings,
  DATABASE_URL: {
    ...text('', '', 'Postgres 14 or newer. Empty: npm start runs an embedded Postgres in DATA_DIR.'),
    pattern: '^(postgres(ql)?://.+)?$',
    rule: 'must start with postgres:// or postgresql://',
  },
  DEPLOYMENT_FORM: {
    ...text(
      '',
      '',
      'Form of this installation. embedded: npm start runs Postgres in DATA_DIR and keeps a key for credentials there, and private networks may be reached. production: you run Postgres, and private networks are refused. Empty: embedded if DATABASE_URL is empty, else production. embedded is refused together with DATABASE_URL and production without it, so set production on servers. npm start passes it to its processes.',
    ),
    enum: ['', 'embedded', 'production'],
  },
  DATABASE_DIRECT_URL: {
    ...text(
      '',
      '',
      'Address of Postgres itself where DATABASE_URL leads through a connection pooler in transaction mode: for migrations, LISTEN, and the queue in Postgres (docs/connection-poolers.md). Empty: DATABASE_URL.',
    ),
    pattern: '^(postgres(ql)?://.+)?$',
    rule: 'must start with postgres:// or postgresql://',
  },
  DATABASE_POOLING: {
    ...text(
      '',
      '',
      'How DATABASE_URL hands out server sessions: none (no pooler), session or transaction, as pool_mode of PgBouncer. Empty: each process finds out when it connects.',
    ),
    enum: ['', 'none', 'session', 'transaction'],
  },
  DISTRIBUTE: {
    ...text(
      '',
      '',
      'Whether release distributes the tables by workspace, over the nodes of the Citus of DATABASE_URL: citus. What is distributed stays so. Empty: one Postgres.',
    ),
    enum: ['', 'citus'],
  },
  DATA_DIR: text(
    '.penstock',
    'path',
    'Folder of the embedded Postgres, of its address and of its key for credentials.',
  ),
  HOST: text('127.0.0.1', 'address', 'Address that the web process listens on.'),
  PORT: port(3000, 'Port of the web process.'),
  ...consoleSettings,
  WORKER_HOST: text('127.0.0.1', 'address', "Address of a worker's own health and metrics."),
  WORKER_PORT: port(3002, "Port of a worker's own health and metrics; 0: none."),
  SYNC_HOST: text('127.0.0.1', 'address', "Address of a sync process's own health and metrics."),
  SYNC_PORT: port(3003, "Port of a sync process's own health and metrics; 0: none."),
  SYNC_CONCURRENCY: integer(
    4,
    { minimum: 1, maximum: 64, unit: 'runs' },
    'Integrations that one sync process works at a time; a live request may wait behind one chunk of each.',
  ),
  SYNC_NICE: integer(
    10,
    { minimum: 0, maximum: 19, unit: 'steps' },
    'Nice value of a sync process once it is ready: on a machine without time to spare, what clients send goes before syncs, streams and exports, which catch up later. 0: all are equal. A sync process on a machine of its own is as fast with any.',
  ),
  SYNC_SCRATCH_BYTES: integer(
    10_737_418_240,
    { minimum: 1_048_576, maximum: 1_125_899_906_842_624, unit: 'bytes' },
    'Disk under TMPDIR that the files of one run of a sync may take, unpacked, and as much again for sorting; never more than 80 % of what is free. Equal on every sync process and for the admin command.',
  ),
  ...outgoingSettings,
  ...bucketSettings,
  METRICS_TOKEN: {
    ...text(
      '',
      '',
      'What /metrics of every process asks for as Authorization: Bearer; 16 to 500 visible ASCII characters. Empty: it is open to whoever reaches the port.',
    ),
    pattern: '^([!-~]{16,500})?$',
    rule: 'must be 16 to 500 visible ASCII characters',
  },
  BOOTSTRAP_API_KEY: {
    ...text(
      '',
      '',
      'API key with every permission for the workspace default, set when that workspace is first made; 16 to 500 visible ASCII characters.',
    ),
    // Its first 8 characters are stored as they are, and a header of more than 512 is not read.
    pattern: '^([!-~]{16,500})?$',
    rule: 'must be 16 to 500 visible ASCII characters',
  },
  BOOTSTRAP_SCIM_TOKEN: {
    ...text(
      '',
      '',
      'First SCIM token of the company default, set while that company has never had one; 16 to 500 visible ASCII characters.',
    ),
    pattern: '^([!-~]{16,500})?$',
    rule: 'must be 16 to 500 visible ASCII characters',
  },
  BOOTSTRAP_SCIM_ORIGIN: {
    ...text('', '', 'What X-Request-Origin has to be with BOOTSTRAP_SCIM_TOKEN; set both or neither.'),
    pattern: '^([!-~]{1,255})?$',
    rule: 'must be 1 to 255 visible ASCII characters',
  },
  INTEGRATION_KEY: {
    ...text(
      '',
      '',
      'Key that credentials of warehouse integrations are encrypted with: 32 bytes in base64 or hex (openssl rand -base64 32). Several with commas between: the first encrypts, any decrypts. Empty: npm start keeps one in DATA_DIR for its embedded Postgres.',
    ),
    pattern: '^((?:[A-Za-z0-9+/]{43}=|[0-9A-Fa-f]{64})(?:,(?:[A-Za-z0-9+/]{43}=|[0-9A-Fa-f]{64}))*)?$',
    rule: 'must be 32 bytes in base64 or hex, or several of these with commas between',
  },
  SERVICE_ID_FIELD: {
    ...text(
      'service_id',
      '',
      "Wire name of the service's own user id (plural with s), for clients that know it by another name.",
    ),
    pattern: '^[a-z][a-z0-9_]*$',
    rule: 'must be a name in lower case, as external_id is',
    not: { enum: [...new Set(reservedNames.flatMap((name) => [name, name.replace(/s$/, '')]))] },
  },
  LONG_STRINGS: {
    ...text(
      'cut',
      '',
      'What becomes of names and strings of more than 255 characters in attributes, events and purchases: cut keeps the first 255 and says so in warnings, refuse refuses the object. Equal on every web and sync process.',
    ),
    enum: ['cut', 'refuse'],
  },
  LOG_LEVEL: {
    ...text('info', '', 'Least severe level that is logged.'),
    enum: ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
  },
  LOG_FORMAT: {
    ...text(
      'auto',
      '',
      'How a line of the log looks: json, or readable; auto: readable on a terminal, else json.',
    ),
    enum: ['auto', 'json', 'readable'],
  },
  LANES: integer(
    1,
    { minimum: 1, maximum: 256, unit: 'lanes' },
    'Queues that accepted objects are spread over by their identifier; workers share them out. The first process of an installation decides; one with another number does not start (penstock queue set-lanes changes it). 1 is a total order and fastest for small requests.',
  ),
  SHARDS: integer(
    1,
    { minimum: 1, maximum: 64, unit: 'shards' },
    'Sets of LANES lanes; a workspace has one, and each is one slot of a Redis Cluster, so that several primaries share the work. On the queue in Redis alone. The first process of an installation decides, as with LANES.',
  ),
  MAX_BODY_BYTES: integer(
    4_194_304,
    { minimum: 1024, maximum: 67_108_864, unit: 'bytes' },
    'Largest request body, also after decompression.',
  ),
  MAX_READING_BYTES: integer(
    16_777_216,
    { minimum: 1024, maximum: 1_073_741_824, unit: 'bytes' },
    'Bytes of bodies over 128 KiB that one web process has in hand, each by its length, a compressed one as twice MAX_BODY_BYTES; further ones wait for their turn, 5 s at most, and are then answered with 503.',
  ),
  MAX_SMALL_BODIES_BYTES: integer(
    67_108_864,
    { minimum: 131_072, maximum: 1_073_741_824, unit: 'bytes' },
    'Bytes of all other bodies that one web process has in hand, from their first byte to their answer. Past it the oldest that is still on its way is answered with 503, those without a valid key first.',
  ),
  MAX_RESPONSE_BYTES: integer(
    33_554_432,
    { minimum: 1_048_576, maximum: 1_073_741_824, unit: 'bytes' },
    'Bytes of unsent responses over 64 KiB that one web process holds. One workspace may hold half of them. Above the limit, requests for large responses are answered with 503. Smaller responses may take a quarter as much on top.',
  ),
  MAX_ENVELOPE_OBJECTS: integer(
    2000,
    { minimum: 1, maximum: 10_000, unit: 'objects' },
    'Most objects in one job.',
  ),
  MAX_PENDING_OBJECTS: integer(
    100_000,
    { minimum: 225, maximum: 10_000_000, unit: 'objects' },
    'Objects that one web process holds while they wait for the queue; more are answered with 503.',
  ),
  MAX_PENDING_BYTES: integer(
    33_554_432,
    { minimum: 1024, maximum: 1_073_741_824, unit: 'bytes' },
    'Bytes of objects that one web process holds while they wait for the queue; more are answered with 503. At least MAX_BODY_BYTES.',
  ),
  MAX_WAITING_ENVELOPES: integer(
    20_000,
    { minimum: 1, maximum: 10_000_000, unit: 'jobs' },
    'Jobs that may wait in the queue; with more, requests are answered with 503.',
  ),
  MAX_ENVELOPE_AGE_MS: integer(
    60_000,
    { minimum: 1000, maximum: 86_400_000, unit: 'ms' },
    'How old the oldest envelope of a lane may be: past it, /readyz of the workers says not ready, that of web and the log name it.',
  ),
  MAX_STANDSTILL_MS: integer(
    10_000,
    { minimum: 1000, maximum: 86_400_000, unit: 'ms' },
    'How long jobs may wait while no worker takes any: past it, the log and /readyz of web say that the fleet stands still.',
  ),
  READY_AT_STANDSTILL: {
    ...text('yes', '', 'Whether a web process counts as ready while the fleet stands still: yes or no.'),
    enum: ['yes', 'no'],
  },
  MAX_REDIS_MEMORY_PERCENT: integer(
    80,
    { minimum: 1, maximum: 100, unit: 'percent' },
    "Share of Redis's maxmemory that may be used; past it, requests are answered with 503. At 100 Redis refuses the workers too, and stays full.",
  ),
  MAX_EVENT_LOOP_LAG_MS: integer(
    1000,
    { minimum: 20, maximum: 60_000, unit: 'ms' },
    'How long work may wait for its turn in a web process; past it, requests that would store something are answered with 503.',
  ),
  QUEUE_TIMEOUT_MS: integer(
    700,
    { minimum: 50, maximum: 60_000, unit: 'ms' },
    'Longest wait for the queue to store accepted objects before the request is answered with 503.',
  ),
  LOCK_DURATION_MS: integer(
    5000,
    { minimum: 500, maximum: 600_000, unit: 'ms' },
    'How long a silent worker keeps its jobs before another takes over; on Redis its lanes for two fifths of that, a second at least.',
  ),
  STALLED_INTERVAL_MS: integer(
    1000,
    { minimum: 100, maximum: 600_000, unit: 'ms' },
    'How often workers look for jobs of a silent worker.',
  ),
  DATABASE_POOL_SIZE: integer(
    5,
    { minimum: 1, maximum: 500, unit: 'connections' },
    'Postgres connections of each pool. A process has several pools (docs/operations.md); connections that a pool does not need are closed.',
  ),
  DATABASE_MAX_CONNECTIONS: integer(
    100,
    { minimum: 13, maximum: 10_000, unit: 'connections' },
    'Postgres connections that all processes of npm start may open together. npm start lowers DATABASE_POOL_SIZE until they fit.',
  ),
  KEY_CACHE_MS: integer(
    2000,
    { minimum: 0, maximum: 60_000, unit: 'ms' },
    'How long a web process remembers an API key: a revocation or a blocked user takes effect within this time.',
  ),
  TRUST_PROXY_HOPS: integer(
    0,
    { minimum: 0, maximum: 10, unit: 'proxies' },
    'Reverse proxies in front of the web process, whose X-Forwarded-For is believed for IP allowlists. Where it has fewer entries, no allowlist lets anybody in.',
  ),
  PUBLIC_URL: {
    ...text(
      '',
      '',
      'Address under which the world reaches the web process, for the links to preference centers and the locations of SCIM; empty: HOST and PORT, and for SCIM the host that was asked.',
    ),
    // It becomes part of a policy in a header.
    pattern: '^(https?://[^\\s?#;,\'"<>]+)?$',
    rule: 'must start with http:// or https:// and have neither a query nor quotes',
  },
  ...proxySettings,
  PREFERENCE_LINK_DAYS: integer(
    90,
    { minimum: 1, maximum: 3650, unit: 'days' },
    'How long a new link to a preference center opens it.',
  ),
  SHUTDOWN_TIMEOUT_MS: integer(
    5000,
    { minimum: 100, maximum: 600_000, unit: 'ms' },
    'Time a process may take to stop after SIGTERM, beyond SHUTDOWN_DELAY_MS.',
  ),
  SHUTDOWN_DELAY_MS: integer(
    0,
    { minimum: 0, maximum: 600_000, unit: 'ms' },
    'How long web and board go on serving after SIGTERM, with 503 on /readyz, before they stop: time for load balancers to see it. 0 where nothing follows /readyz.',
  ),
  LEDGER_DAYS: integer(
    7,
    {
      // An Idempotency-Key may hand over an envelope again for a day.
      minimum: 2,
      maximum: 3650,
      unit: 'days',
    },
    'How long applied envelopes are remembered, so that a late second delivery is recognised and a request can be followed.',
  ),
  AUDIT_DAYS: integer(
    365,
    { minimum: 1, maximum: 3650, unit: 'days' },
    'How long the audit is kept: who did what through the console, the command line and SCIM.',
  ),
  RETENTION_MONTHS: integer(
    0,
    { minimum: 0, maximum: 1200, unit: 'months' },
    'How long events and purchases are kept by workspaces that have no number of their own (penstock retention set); 0: for ever. Sums and series stay. Equal on every sync process and for the admin command.',
  ),
  ARCHIVE_URL: text(
    '',
    '',
    'Where months go before they are dropped: the path of a folder, or s3://bucket/prefix. Empty: no month goes by schedule. Equal on every sync process and for the admin command.',
  ),
  ...tracingSettings,
} as const;
