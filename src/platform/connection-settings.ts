/** A setting that is a text, in the form that config.ts reads and .env.example is written from. */
export function text(value: string, unit: string, description: string) {
  return { type: 'string' as const, default: value, unit, description };
}

export function integer(
  value: number,
  range: { minimum: number; maximum: number; unit: string },
  description: string,
) {
  return { type: 'integer' as const, default: value, ...range, description };
}

export function port(value: number, description: string) {
  return integer(value, { minimum: 0, maximum: 65_535, unit: 'port' }, description);
}

/** The settings of Redis: part of `settings`, as whose documentation they are written. */
export const redisSettings = {
  REDIS_URL: {
    ...text(
      '',
      '',
      'Redis or Valkey for the queue and the rate limits; empty: both live in Postgres and in the web process.',
    ),
    pattern: '^(rediss?://.+)?$',
    rule: 'must start with redis:// or rediss://',
  },
  QUEUE: {
    ...text(
      '',
      '',
      'Where accepted objects wait: redis or postgres; empty: in Redis where REDIS_URL is set, else in Postgres. With postgres beside REDIS_URL, Redis holds the rate limits alone. Equal on every process and for the admin command.',
    ),
    pattern: '^(redis|postgres)?$',
    rule: 'must be redis or postgres',
  },
  REDIS_SENTINELS: {
    ...text(
      '',
      '',
      'Sentinels that know where the primary of REDIS_URL is, as host:port with commas between; REDIS_URL then gives user, password, database and TLS, and its host and port are not used.',
    ),
    pattern: '^([^\\s,/@]+(\\s*,\\s*[^\\s,/@]+)*)?$',
    rule: 'must be host:port, with commas between',
  },
  REDIS_SENTINEL_NAME: text('mymaster', '', 'Name by which the Sentinels know the primary.'),
  REDIS_CLUSTER_NODES: {
    ...text(
      '',
      '',
      'Some servers of a Redis or Valkey Cluster, as host:port with commas between; they name the others. REDIS_URL then gives user, password and TLS, and its host and port are not used. Empty: REDIS_URL is one server.',
    ),
    pattern: '^([^\\s,/@]+(\\s*,\\s*[^\\s,/@]+)*)?$',
    rule: 'must be host:port, with commas between',
  },
  REDIS_WAIT_REPLICAS: integer(
    0,
    { minimum: 0, maximum: 10, unit: 'replicas' },
    'Replicas of Redis that have to hold what was accepted before it is acknowledged (WAIT), so that a failover loses nothing; with fewer in half of QUEUE_TIMEOUT_MS, requests are answered with 503. 0: the disk of the primary is enough.',
  ),
} as const;

/** How the processes reach the buckets that settings name by `s3://bucket/prefix`. */
export const bucketSettings = {
  S3_REGION: {
    ...text('', '', 'Region of the buckets that settings name as s3://bucket/prefix.'),
    pattern: '^([a-z0-9-]{1,64})?$',
    rule: 'must be a region, as eu-central-1',
  },
  S3_ENDPOINT: {
    ...text('', '', 'Address of the service that has these buckets, as https://objects.example; empty: AWS.'),
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  S3_ACCESS_KEY_ID: {
    ...text('', '', 'Who reads and writes these buckets.'),
    pattern: '^([!-~]{1,255})?$',
    rule: 'must be 1 to 255 visible ASCII characters',
  },
  S3_SECRET_ACCESS_KEY: {
    ...text('', '', 'The secret of S3_ACCESS_KEY_ID.'),
    pattern: '^([!-~]{1,500})?$',
    rule: 'must be 1 to 500 visible ASCII characters',
  },
} as const;

const NETWORK = '[0-9A-Fa-f.:]+/[0-9]{1,3}';

/** Settings of what we connect to for somebody else. */
export const outgoingSettings = {
  REFUSED_NETWORKS: {
    ...text(
      '',
      '',
      'Addresses that are connected to for nobody, also where a name leads to them: for webhooks, callbacks, brokers, buckets, and sources of syncs and imports. Networks as 10.0.0.0/8 and the words private (all that is no public address: private, loopback, link-local, multicast and others), metadata (what cloud machines ask for credentials) or none, with commas between. Empty: private in the production form, metadata in the embedded form (DEPLOYMENT_FORM). Equal on every process and for the admin command.',
    ),
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  ALLOWED_NETWORKS: {
    ...text(
      '',
      '',
      'Exceptions of REFUSED_NETWORKS, as the networks that your own warehouses and receivers are in: networks as 10.1.0.0/16, with commas between. Equal on every process and for the admin command.',
    ),
    pattern: `^(${NETWORK}( *, *${NETWORK})*)?$`,
    rule: 'must be networks as 10.1.0.0/16, with commas between',
  },
  SYNC_REFUSED_NETWORKS: {
    ...text(
      '',
      '',
      'Instead of REFUSED_NETWORKS for what the operator alone names, which are sources of syncs and imports, the buckets of ARCHIVE_URL and SEGMENT_EXPORT_URL, and those that penstock export writes to: networks as 10.0.0.0/8, private or metadata, with commas between; none: any may be reached. Empty: REFUSED_NETWORKS. ALLOWED_NETWORKS are exceptions here, too.',
    ),
    pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
    rule: 'must be networks as 10.0.0.0/8, private or metadata, with commas between, or none',
  },
  STREAM_LOG_DAYS: integer(
    7,
    { minimum: 1, maximum: 365, unit: 'days' },
    'How long the log of streams is kept, of workspaces that have a destination: what a destination has not got by then it never gets.',
  ),
  STREAM_YIELD_SECONDS: integer(
    60,
    { minimum: 0, maximum: 86_400, unit: 'seconds' },
    'How far streams may fall behind what takes effect, while workers are behind and the machine of the sync process has no processor to spare: until then each destination gets 500 messages every five seconds at most, from then on its share of the machine. 0: they never give way.',
  ),
  STREAM_FOLDERS: {
    ...text(
      '',
      '',
      'Folders that streams may write files to, with all that is beneath them: paths from the root, with commas between. Unless told, the folder streams of DATA_DIR. Equal on every sync process and for the admin command.',
    ),
    pattern: '^(/[^,]*( *, */[^,]*)*)?$',
    rule: 'must be paths that begin with a slash, with commas between',
  },
  SEGMENT_EXPORT_URL: text(
    '',
    '',
    'Where POST /users/export/segment writes: s3://bucket/prefix, or the path of a folder that web and sync share; unless told, the folder segment-exports of DATA_DIR. Equal on every web and sync process.',
  ),
} as const;

/** Of the thin proxy before another service, in the form of `settings`: docs/migration.md. */
export const proxySettings = {
  PROXY_UPSTREAM: {
    ...text(
      '',
      '',
      'Address of another service of the same API: a web process then answers as that one does, and keeps its own copy of what changes users (docs/migration.md); empty: no proxy.',
    ),
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  },
  PROXY_TIMEOUT_MS: integer(
    10_000,
    { minimum: 100, maximum: 60_000, unit: 'ms' },
    'How long PROXY_UPSTREAM may take to answer; then 504.',
  ),
} as const;

/**
 * Settings of traces, by the names of OpenTelemetry's specification. The SDK itself reads those variables of it that need
 * no rule of ours: docs/operations.md names them.
 */
export const tracingSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    ...text(
      '',
      '',
      'Where traces are sent, as http://collector:4318: the address of an OpenTelemetry collector, to which /v1/traces is added. Empty: nothing is traced.',
    ),
    pattern: '^(https?://[^\\s]+)?$',
    rule: 'must start with http:// or https://',
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    ...text(
      'http/json',
      '',
      'How traces are sent. Collectors take both at the same port; http/protobuf takes half the bytes and more processor time. There is no grpc here.',
    ),
    enum: ['http/protobuf', 'http/json'],
  },
  OTEL_SDK_DISABLED: {
    ...text('false', '', 'Nothing is traced where it is true, whatever else is set.'),
    enum: ['true', 'false'],
  },
  OTEL_TRACES_SAMPLER: {
    ...text(
      'parentbased_always_on',
      '',
      'Which requests are traced. parentbased_: those whose client says so in its traceparent, and of those without one what the rest of the name says.',
    ),
    enum: [
      ...['always_on', 'always_off', 'traceidratio'],
      ...['parentbased_always_on', 'parentbased_always_off', 'parentbased_traceidratio'],
    ],
  },
  OTEL_TRACES_SAMPLER_ARG: {
    ...text(
      '',
      '',
      'Share of requests that traceidratio traces, from 0 to 1: 0.01 is one in a hundred. Empty: all.',
    ),
    pattern: '^(0?\\.[0-9]+|0|1(\\.0+)?)?$',
    rule: 'must be a number from 0 to 1',
  },
} as const;

/** Settings of the console: where it is, who operates it, and who else tells it who somebody is. */
export const consoleSettings = {
  BOARD_HOST: text(
    '127.0.0.1',
    'address',
    'Address that the console listens on; never open it to the world.',
  ),
  BOARD_PORT: port(3001, 'Port of the console.'),
  BOARD_URL: {
    ...text(
      '',
      '',
      'Address under which people reach the console, as https://console.example.com: for links of invitations, and for where OIDC_ISSUER sends people back to; empty: for links that of the page which asks, or BOARD_HOST and BOARD_PORT.',
    ),
    pattern: '^(https?://[^\\s?#;,\'"<>/@\\\\]+/?)?$',
    rule: 'must start with http:// or https:// and name a host, perhaps a port, and no path',
  },
  BOARD_USER: text('admin', '', 'User name for the console.'),
  BOARD_PASSWORD: text(
    '',
    '',
    'Password for the console; empty: a random one, shown once in the log at start.',
  ),
  OIDC_ISSUER: {
    ...text(
      '',
      '',
      'OpenID Connect: the provider by which people of OIDC_COMPANY sign in to the console beside passwords, by its issuer identifier. Needs OIDC_CLIENT_ID and BOARD_URL; empty: passwords alone.',
    ),
    // Tokens and the client's secret cross no network in clear.
    pattern:
      '^(https://[^\\s?#@]+|http://(localhost|127\\.0\\.0\\.1|\\[::1\\])(:[0-9]{1,5})?(/[^\\s?#@]*)?)?$',
    rule: 'must start with https://, or with http:// on this machine, and have neither a query nor a user',
  },
  OIDC_CLIENT_ID: text('', '', 'By which name the provider knows the console.'),
  OIDC_CLIENT_SECRET: {
    ...text('', '', 'What the console proves itself by; empty: it is a public client, and PKCE alone holds.'),
    pattern: '^([!-~]{1,1000})?$',
    rule: 'must be at most 1,000 visible ASCII characters',
  },
  OIDC_ACCOUNT_CLAIM: {
    ...text(
      'email',
      '',
      'Claim that has to be the userName of an account of SCIM. Of email the provider has to say that it is verified; name another one only where nobody can choose it for themselves.',
    ),
    pattern: '^[A-Za-z0-9_.:/-]{1,100}$',
    rule: 'must be the name of a claim, as email or preferred_username',
  },
  OIDC_COMPANY: text(
    'default',
    '',
    'Name or id of the company for whose accounts the provider speaks: for those of others it says nothing.',
  ),
} as const;
