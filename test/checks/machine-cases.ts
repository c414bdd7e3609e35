import type {
  Certificate,
  MachineReadings,
  MachineSettings,
  Readings,
  RedisServer,
} from '../../src/checks/readings.ts';

/** Readings above the threshold of one check, and the problem that the check lists. */
export type CaseRow = readonly [
  name: string,
  change: Partial<Readings>,
  id: string,
  severity: string,
  sentence: RegExp,
];

const on = (machine: MachineReadings): Partial<Readings> => ({ machine });

const settings = (change: Partial<MachineSettings>) =>
  on({
    settings: {
      ...{ isProduction: true, webHost: '127.0.0.1', hasMetricsToken: false, consoleHost: '::1' },
      ...{ redisPercent: 95, hasIntegrationKey: true, ...change },
    },
  });

const postgres = (change: Partial<Readings['postgres']>): Partial<Readings> => ({
  postgres: { latency: 2, used: 30, most: 100, isReadOnly: false, ...change },
});

const off = (name: string, others: Record<string, string> = {}) =>
  postgres({ version: 160_004, settings: { ...others, [name]: 'off' } });

const certificate = (change: Partial<Certificate>) =>
  on({
    certificates: [
      { store: 'Redis', server: 'r-1:6379', validUntil: new Date('2027-01-02T03:04:50.000Z'), ...change },
    ],
  });

const safe: RedisServer = {
  ...{ name: undefined, maxmemory: 1024 ** 3, replicas: 0 },
  settings: { evicts: 'noeviction', appends: 'yes', syncs: 'always' },
};

const redis = (change: Partial<RedisServer>, others: Partial<MachineReadings['redis']> = {}) =>
  on({ redis: { servers: [{ ...safe, ...change }], replicasWanted: 0, strayJobs: [], ...others } });

const serving = { isServing: true, shards: 3, dependent: [] };

/** Cases of the checks that `penstock doctor` evaluates on its machine. */
export const machineCases: readonly CaseRow[] = [
  [
    'a setting is invalid',
    on({ invalidSetting: 'wrong setting: PORT must be integer (it is "eighty")' }),
    'settings-invalid',
    'critical',
    /^wrong setting: PORT must be integer/,
  ],
  [
    'metrics are open',
    settings({ webHost: '10.0.0.7' }),
    'metrics-open',
    'warning',
    /^HOST is 10\.0\.0\.7 and METRICS_TOKEN is empty/,
  ],
  [
    'the console is open',
    settings({ consoleHost: '10.0.0.7' }),
    'console-open',
    'warning',
    /^BOARD_HOST is 10\.0\.0\.7: other machines/,
  ],
  [
    'web fills Redis completely',
    settings({ redisPercent: 96 }),
    'redis-limit-high',
    'warning',
    /^MAX_REDIS_MEMORY_PERCENT is 96: near 100/,
  ],
  [
    'INTEGRATION_KEY is empty in production',
    settings({ hasIntegrationKey: false }),
    'integration-key-missing',
    'warning',
    /^INTEGRATION_KEY is empty: /,
  ],
  [
    'others can read a file with a secret',
    on({ files: [{ path: '/data/password', mode: 0o644 }] }),
    'secret-readable',
    'critical',
    /^\/data\/password has mode 644: other users/,
  ],
  [
    'others can read .env',
    on({ files: [{ path: '.env', mode: 0o640 }] }),
    'secret-readable',
    'warning',
    /^\.env has mode 640: /,
  ],
  [
    'Postgres has no address',
    on({ lacksDatabaseUrl: true }),
    'postgres-address-missing',
    'critical',
    /^DATABASE_URL is empty, and npm start has never run in DATA_DIR\.$/,
  ],
  [
    'a pooler has no direct address',
    on({ lacksDirectUrl: true }),
    'direct-address-missing',
    'warning',
    /^DATABASE_URL leads through a connection pooler in transaction mode/,
  ],
  [
    'a pooler leads to the queue in Postgres',
    { queue: 'postgres', ...on({ lacksDirectUrl: true }) },
    'direct-address-missing',
    'critical',
    /^DATABASE_URL leads through a connection pooler/,
  ],
  [
    'sslrootcert is missing',
    on({ failures: [{ reading: 'certificates', reason: 'ENOENT' }] }),
    'certificates-unread',
    'critical',
    /^The certificates could not be read: ENOENT\.$/,
  ],
  [
    'a statement of Postgres fails',
    on({ failures: [{ reading: 'postgres', reason: 'permission denied' }] }),
    'postgres-unread',
    'critical',
    /^The state of Postgres could not be read: permission denied\.$/,
  ],
  [
    'a command of Redis fails',
    on({ failures: [{ reading: 'queue', reason: 'NOPERM' }] }),
    'queue-unread',
    'critical',
    /^The state of the queue could not be read: NOPERM\.$/,
  ],
  [
    'a certificate has expired',
    certificate({ validUntil: new Date('2026-01-02T03:04:00.000Z'), distrust: 'CERT_HAS_EXPIRED' }),
    'certificate-expired',
    'critical',
    /^The certificate of Redis \(r-1:6379\) has expired: it was valid until 2026-01-02T03:04:00\.000Z\.$/,
  ],
  [
    'a certificate expires',
    certificate({ validUntil: new Date('2026-01-16T03:04:50.000Z') }),
    'certificate-expires',
    'warning',
    /^The certificate of Redis \(r-1:6379\) expires in 14 d, at 2026-01-16T/,
  ],
  [
    'a certificate is not trusted',
    certificate({ distrust: 'SELF_SIGNED' }),
    'certificate-untrusted',
    'critical',
    /^The certificate of Redis \(r-1:6379\) is not trusted on this machine: SELF_SIGNED\.$/,
  ],
  [
    'Postgres does not offer TLS',
    certificate({ store: 'Postgres', server: 'db:5432', validUntil: undefined }),
    'tls-not-offered',
    'critical',
    /^DATABASE_URL requires TLS, and Postgres \(db:5432\) does not offer it\.$/,
  ],
  [
    'the clock of Redis is ahead',
    on({ clocks: [{ store: 'Redis', skew: 60_000 }] }),
    'clock-skew',
    'warning',
    /^The clock of Redis is 1 min ahead of the clock of this machine \(threshold 2 s\)\.$/,
  ],
  [
    'the clock of Postgres is behind',
    on({ clocks: [{ store: 'Postgres', skew: -2000 }] }),
    'clock-skew',
    'warning',
    /^The clock of Postgres is 2 s behind the clock of this machine/,
  ],
  [
    'Postgres is an old release',
    postgres({ version: 130_011 }),
    'postgres-too-old',
    'critical',
    /^Postgres 13\.11 is too old\.$/,
  ],
  ...['fsync', 'full_page_writes', 'synchronous_commit'].map(
    (name): CaseRow => [
      `${name} is off`,
      off(name),
      'postgres-not-durable',
      'critical',
      new RegExp(`^${name} is off: a crash `),
    ],
  ),
  [
    'data checksums are off',
    off('data_checksums', { data_directory: '/data' }),
    'checksums-off',
    'warning',
    /^data_checksums is off: /,
  ],
  [
    'Postgres has read a damaged page',
    postgres({ damagedPages: 1 }),
    'pages-damaged',
    'critical',
    /^Postgres has read 1 damaged page: /,
  ],
  [
    'Postgres has read damaged pages',
    postgres({ damagedPages: 2 }),
    'pages-damaged',
    'critical',
    /^Postgres has read 2 damaged pages: /,
  ],
  ...['autovacuum', 'track_counts'].map(
    (name): CaseRow => [
      `${name} is off`,
      off(name),
      'autovacuum-off',
      'warning',
      new RegExp(`^${name} is off: tables grow`),
    ],
  ),
  [
    'a transaction is old',
    postgres({ oldestTransactionSeconds: 3600 }),
    'transaction-old',
    'warning',
    /^A transaction of Postgres has been open for 1 h \(threshold 5 min\)\.$/,
  ],
  [
    'a partition is missing',
    on({ missingPartitions: ['events_2026_02', 'purchases_2026_02'] }),
    'partition-missing',
    'critical',
    /^Missing partition: events_2026_02, purchases_2026_02\.$/,
  ],
  [
    'lanes wait at fences',
    on({ fences: { fences: 2, seconds: 75 } }),
    'fence-stuck',
    'warning',
    /^Lanes wait at 2 fences, for up to 1 min 15 s\.$/,
  ],
  [
    'a table is bloated',
    on({ tables: [{ table: 'ledger', liveRows: 10_000, deadRows: 60_000 }] }),
    'table-bloated',
    'warning',
    /^ledger has 60,000 dead rows\.$/,
  ],
  [
    'Redis evicts keys',
    redis({ settings: { ...safe.settings, evicts: 'allkeys-lru' } }),
    'redis-evicts',
    'critical',
    /^maxmemory-policy is allkeys-lru: Redis can drop accepted objects\.$/,
  ],
  [
    'Redis does not write to its disk',
    redis({ settings: { ...safe.settings, appends: 'no' } }),
    'redis-not-durable',
    'warning',
    /^A crash of Redis loses every accepted object that is not applied yet/,
  ],
  [
    'Redis has no memory limit',
    redis({ name: 'r-1:6379', maxmemory: 0 }),
    'redis-unlimited',
    'warning',
    /^r-1:6379: maxmemory is not set: /,
  ],
  [
    'replicas are missing',
    redis({ replicas: 1 }, { replicasWanted: 2 }),
    'replicas-missing',
    'critical',
    /^REDIS_WAIT_REPLICAS is 2, and 1 replica is connected: no request is accepted\.$/,
  ],
  [
    'the cluster is down',
    redis({ name: 'r-1:6379', replicas: 1 }, { cluster: { ...serving, isServing: false } }),
    'cluster-down',
    'critical',
    /^The Redis Cluster is down\.$/,
  ],
  [
    'shards depend on each other',
    redis({ name: 'r-1:6379', replicas: 1 }, { cluster: { ...serving, dependent: ['r-1:6379'] } }),
    'shards-dependent',
    'warning',
    /^r-1:6379: cluster-require-full-coverage is yes: .*\.$/,
  ],
  [
    'a primary of the cluster has no replica',
    redis({ name: 'r-1:6379' }, { cluster: serving }),
    'primary-without-replica',
    'warning',
    /^r-1:6379 has lanes and no replica: .* for its shards\.$/,
  ],
  [
    'a job is in no list',
    redis({}, { strayJobs: ['{penstock}:lane-0:a'] }),
    'jobs-stray',
    'critical',
    /^1 job is in no list of the lane, .*, for example \{penstock\}:lane-0:a\.$/,
  ],
  [
    'LANES differs',
    { spread: { lanes: 4, shards: 1 }, settings: { lanes: 1, shards: 1 } },
    'lanes-differ',
    'critical',
    /^LANES is 1 here, and the installation has 4\.$/,
  ],
  [
    'a later release wrote a job',
    { own: { unreadable: [{ lane: 1, version: 9, reads: 8 }] } },
    'job-unreadable',
    'critical',
    /^Lane 1 waits for a worker of a later release: /,
  ],
];
