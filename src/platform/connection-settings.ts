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

/** How the processes reach the buckets that settings name by `s3://bucket/prefix`. */
export const bucketSettings = {
  S3_REGION: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Region of the buckets that settings name as s3://bucket/prefix.',
    pattern: '^([a-z0-9-]{1,64})?$',
    rule: 'must be a region, as eu-central-1',
  },
  S3_ENDPOINT: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Address of the service that has these buckets, as https://objects.example; empty: AWS.',
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  S3_ACCESS_KEY_ID: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Who reads and writes these buckets.',
    pattern: '^([!-~]{1,255})?$',
    rule: 'must be 1 to 255 visible ASCII characters',
  },
  S3_SECRET_ACCESS_KEY: {
    type: 'string',
    default: '',
    unit: '',
    description: 'The secret of S3_ACCESS_KEY_ID.',
    pattern: '^([!-~]{1,500})?$',
    rule: 'must be 1 to 500 visible ASCII characters',
  },
} as const;

const NETWORK = '[0-9A-Fa-f.:]+/[0-9]{1,3}';

/** Settings of what we connect to for somebody else. */
export const outgoingSettings = {
  REFUSED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Addresses that are connected to for nobody, also where a name leads to them: for webhooks, callbacks, brokers, buckets, and sources of syncs and imports. Networks as 10.0.0.0/8 and the words private (all that is no public address: private, loopback, link-local, multicast and others), metadata (what cloud machines ask for credentials) or none, with commas between. Empty: private, and metadata with the embedded Postgres. Equal on every process and for the admin command.',
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  ALLOWED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Exceptions of REFUSED_NETWORKS, as the networks that your own warehouses and receivers are in: networks as 10.1.0.0/16, with commas between. Equal on every process and for the admin command.',
    pattern: `^(${NETWORK}( *, *${NETWORK})*)?$`,
    rule: 'must be networks as 10.1.0.0/16, with commas between',
  },
  SYNC_REFUSED_NETWORKS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Instead of REFUSED_NETWORKS for what the operator alone names, which are sources of syncs and imports, the buckets of ARCHIVE_URL and SEGMENT_EXPORT_URL, and those that penstock export writes to: networks as 10.0.0.0/8, private or metadata, with commas between; none: any may be reached. Empty: REFUSED_NETWORKS. ALLOWED_NETWORKS are exceptions here, too.',
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  STREAM_LOG_DAYS: {
    type: 'integer',
    default: 7,
    minimum: 1,
    maximum: 365,
    unit: 'days',
    description:
      'How long the log of streams is kept, of workspaces that have a destination: what a destination has not got by then it never gets.',
  },
  STREAM_YIELD_SECONDS: {
    type: 'integer',
    default: 60,
    minimum: 0,
    maximum: 86_400,
    unit: 'seconds',
    description:
      'How far streams may fall behind what takes effect, while workers are behind and the machine of the sync process has no processor to spare: until then each destination gets 500 messages every five seconds at most, from then on its share of the machine. 0: they never give way.',
  },
  STREAM_FOLDERS: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Folders that streams may write files to, with all that is beneath them: paths from the root, with commas between. Unless told, the folder streams of DATA_DIR. Equal on every sync process and for the admin command.',
    pattern: '^(/[^,]*( *, */[^,]*)*)?$',
    rule: 'must be paths that begin with a slash, with commas between',
  },
  SEGMENT_EXPORT_URL: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Where POST /users/export/segment writes: s3://bucket/prefix, or the path of a folder that web and sync share; unless told, the folder segment-exports of DATA_DIR. Equal on every web and sync process.',
  },
} as const;

/** Of the thin proxy before another service, in the form of `settings`: docs/migration.md. */
export const proxySettings = {
  PROXY_UPSTREAM: {
    type: 'string' as const,
    default: '',
    unit: '',
    description:
      'Address of another service of the same API: a web process then answers as that one does, and keeps its own copy of what changes users (docs/migration.md); empty: no proxy.',
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  PROXY_TIMEOUT_MS: {
    type: 'integer' as const,
    default: 10_000,
    minimum: 100,
    maximum: 60_000,
    unit: 'ms',
    description: 'How long PROXY_UPSTREAM may take to answer; then 504.',
  },
};

/**
 * Settings of traces, by the names of OpenTelemetry's specification. The SDK itself reads those variables of it that need
 * no rule of ours: docs/operations.md names them.
 */
export const tracingSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Where traces are sent, as http://collector:4318: the address of an OpenTelemetry collector, to which /v1/traces is added. Empty: nothing is traced.',
    pattern: '^(https?://[^\\s]+)?$',
    rule: 'must start with http:// or https://',
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    type: 'string',
    default: 'http/json',
    unit: '',
    description:
      'How traces are sent. Collectors take both at the same port; http/protobuf takes half the bytes and more processor time. There is no grpc here.',
    enum: ['http/protobuf', 'http/json'],
  },
  OTEL_SDK_DISABLED: {
    type: 'string',
    default: 'false',
    unit: '',
    description: 'Nothing is traced where it is true, whatever else is set.',
    enum: ['true', 'false'],
  },
  OTEL_TRACES_SAMPLER: {
    type: 'string',
    default: 'parentbased_always_on',
    unit: '',
    description:
      'Which requests are traced. parentbased_: those whose client says so in its traceparent, and of those without one what the rest of the name says.',
    enum: [
      ...['always_on', 'always_off', 'traceidratio'],
      ...['parentbased_always_on', 'parentbased_always_off', 'parentbased_traceidratio'],
    ],
  },
  OTEL_TRACES_SAMPLER_ARG: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Share of requests that traceidratio traces, from 0 to 1: 0.01 is one in a hundred. Empty: all.',
    pattern: '^(0?\\.[0-9]+|0|1(\\.0+)?)?$',
    rule: 'must be a number from 0 to 1',
  },
} as const;
