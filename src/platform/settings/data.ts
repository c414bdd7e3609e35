import { integer, text, visibleAscii } from './define.ts';

const NETWORK = '[0-9A-Fa-f.:]+/[0-9]{1,3}';

const REFUSED = {
  pattern: `^((none|metadata|private|${NETWORK})( *, *(metadata|private|${NETWORK}))*)?$`,
  rule: 'must be networks such as 10.0.0.0/8, private or metadata, separated by commas, or none',
};

/** Settings of the addresses to which Penstock connects for a user or an operator. */
export const outgoingSettings = {
  REFUSED_NETWORKS: text({
    description:
      'The addresses that Penstock never connects to, also if a name resolves to them: for webhooks, callbacks, Kafka brokers, buckets, and sources of syncs and imports. Networks and these words, separated by commas: `private` (all addresses that are not public, for example private, loopback, link-local and multicast), `metadata` (the addresses from which cloud machines read credentials), or only `none`. Empty: `private` in the production form, `metadata` in the embedded form (DEPLOYMENT_FORM). All processes and the admin command need the same value.',
    example: 'private,203.0.113.0/24',
    readBy: ['web', 'sync', 'board', 'cli'],
    ...REFUSED,
  }),
  ALLOWED_NETWORKS: text({
    description:
      'Exceptions from REFUSED_NETWORKS and SYNC_REFUSED_NETWORKS, separated by commas. Name the networks of your own warehouses and destinations. All processes and the admin command need the same value.',
    example: '10.1.0.0/16,fd12:3456::/32',
    readBy: ['web', 'sync', 'board', 'cli'],
    pattern: `^(${NETWORK}( *, *${NETWORK})*)?$`,
    rule: 'must be networks such as 10.1.0.0/16, separated by commas',
  }),
  SYNC_REFUSED_NETWORKS: text({
    description:
      'Replaces REFUSED_NETWORKS for addresses that only the operator can set: sources of syncs and imports, the buckets of ARCHIVE_URL and SEGMENT_EXPORT_URL, and the buckets of `penstock export`. It has the same form; `none` allows every address. Empty: REFUSED_NETWORKS is used.',
    example: 'metadata',
    readBy: ['web', 'sync', 'cli'],
    ...REFUSED,
  }),
} as const;

/** Settings of warehouse syncs. */
export const syncSettings = {
  INTEGRATION_KEY: text({
    description:
      'The key that encrypts the credentials of integrations and streams: 32 bytes in base64 or hex, as `openssl rand -base64 32` prints them. To replace a key, put the new key first and the old one after a comma: the first key encrypts, and every key decrypts. Empty: the embedded form uses a key in DATA_DIR, and the production form cannot store credentials.',
    example: '0123456789abcdef'.repeat(4),
    readBy: ['sync', 'board', 'cli'],
    pattern: '^((?:[A-Za-z0-9+/]{43}=|[0-9A-Fa-f]{64})(?:,(?:[A-Za-z0-9+/]{43}=|[0-9A-Fa-f]{64}))*)?$',
    rule: 'must be 32 bytes in base64 or hex, or several such keys separated by commas',
  }),
  SYNC_CONCURRENCY: integer({
    description:
      'The number of runs that one sync process works on at the same time. Each run can delay a live request by one chunk of rows.',
    ...{ default: 4, minimum: 1, maximum: 64, unit: 'runs' },
    example: '8',
    readBy: ['sync'],
  }),
  SYNC_NICE: integer({
    description:
      'The nice value of a sync process after its start. On a busy machine, web and workers then run before syncs, streams and exports, which catch up later. 0: equal priority. It has no effect on a machine that runs only sync processes.',
    ...{ default: 10, minimum: 0, maximum: 19, unit: 'steps' },
    example: '0',
    readBy: ['sync'],
  }),
  SYNC_SCRATCH_BYTES: integer({
    description:
      'The maximum disk space in TMPDIR for the unpacked files of one sync run, and the same amount again for sorting. Never more than 80 % of the free space. A run that needs more fails. All sync processes and the admin command need the same value.',
    ...{ default: 10_737_418_240, minimum: 1_048_576, maximum: 1_125_899_906_842_624, unit: 'bytes' },
    example: '2147483648',
    readBy: ['sync', 'board', 'cli'],
  }),
} as const;

/** Settings of streams to webhooks, Kafka and files. */
export const streamSettings = {
  STREAM_LOG_DAYS: integer({
    description:
      'The number of days for which changes are kept for streams, in workspaces that have a destination. A destination that has not received a change by then never receives it.',
    ...{ default: 7, minimum: 1, maximum: 365, unit: 'days' },
    example: '14',
    readBy: ['sync'],
  }),
  STREAM_YIELD_SECONDS: integer({
    description:
      'The maximum lag that streams accept in favor of workers, while the workers are behind and the machine of the sync process has no idle CPU. Until then, each destination gets at most 500 messages every five seconds. 0: streams are never throttled.',
    ...{ default: 60, minimum: 0, maximum: 86_400, unit: 'seconds' },
    example: '10',
    readBy: ['sync'],
  }),
  STREAM_FOLDERS: text({
    description:
      'The folders to which streams can write files, including their subfolders: absolute paths separated by commas. Empty: the folder `streams` in DATA_DIR. All sync processes and the admin command need the same value.',
    example: '/var/lib/penstock/streams,/mnt/lake',
    readBy: ['sync', 'cli'],
    pattern: '^(/[^,]*( *, */[^,]*)*)?$',
    rule: 'must be paths that begin with a slash, separated by commas',
  }),
} as const;

/** Settings of exports and of the buckets that settings name as `s3://bucket/prefix`. */
export const exportSettings = {
  SEGMENT_EXPORT_URL: text({
    description:
      'Where POST /users/export/segment writes its files: s3://bucket/prefix, or the path of a folder that web and sync share. Empty: the folder `segment-exports` in DATA_DIR. All processes that read it need the same value.',
    example: 's3://example-exports/segments',
    readBy: ['web', 'sync', 'board', 'cli'],
  }),
  S3_REGION: text({
    description:
      'The region of the buckets that other settings name as s3://bucket/prefix, for example in ARCHIVE_URL.',
    example: 'eu-central-1',
    readBy: ['web', 'sync', 'cli'],
    pattern: '^([a-z0-9-]{1,64})?$',
    rule: 'must be a region, for example eu-central-1',
  }),
  S3_ENDPOINT: text({
    description: 'The address of the S3-compatible service that has these buckets. Empty: AWS.',
    example: 'https://objects.example.com',
    readBy: ['web', 'sync', 'cli'],
    pattern: '^(https?://[^\\s?#@]+)?$',
    rule: 'must start with http:// or https:// and have neither a user nor a query',
  }),
  S3_ACCESS_KEY_ID: text({
    description: 'The access key id with which these buckets are read and written.',
    example: 'penstock-exports',
    readBy: ['web', 'sync', 'cli'],
    ...visibleAscii(1, 255),
  }),
  S3_SECRET_ACCESS_KEY: text({
    description: 'The secret of S3_ACCESS_KEY_ID.',
    example: 'the-secret-of-the-access-key',
    readBy: ['web', 'sync', 'cli'],
    ...visibleAscii(1, 500),
  }),
} as const;

/** Settings of how long data is kept. */
export const retentionSettings = {
  RETENTION_MONTHS: integer({
    description:
      'The number of months for which events and purchases are kept, in workspaces without their own number (`penstock retention set`). 0: indefinitely. Sums and series are always kept. All sync processes and the admin command need the same value.',
    ...{ default: 0, minimum: 0, maximum: 1200, unit: 'months' },
    example: '24',
    readBy: ['sync', 'board', 'cli'],
  }),
  ARCHIVE_URL: text({
    description:
      'Where a month is archived before it is dropped: the path of a folder, or s3://bucket/prefix. Empty: the schedule drops no month. All sync processes and the admin command need the same value.',
    example: 's3://example-archive/penstock',
    readBy: ['sync', 'board', 'cli'],
  }),
  LEDGER_DAYS: integer({
    description:
      'The number of days for which applied jobs are remembered. Within this time, a repeated delivery of a job has no second effect, and GET /requests/{request_id} shows what became of a request.',
    // A request with the same Idempotency-Key can add an envelope a second time for a day.
    ...{ default: 7, minimum: 2, maximum: 3650, unit: 'days' },
    example: '30',
    readBy: ['worker'],
  }),
  AUDIT_DAYS: integer({
    description:
      'The number of days for which the audit log is kept: who did what through the console, the command line and SCIM.',
    ...{ default: 365, minimum: 1, maximum: 3650, unit: 'days' },
    example: '730',
    readBy: ['worker', 'board'],
  }),
} as const;
