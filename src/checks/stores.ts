import { duration, grouped } from '../platform/format.ts';
import { whatIsLost } from '../queue/loss.ts';
import { certificateChecks } from './certificates.ts';
import type { Check } from './check.ts';
import type { Dependency, Lacking, Readings } from './readings.ts';
import { clockTime, gigabytes } from './text.ts';

/** Free shares of a disk. */
const DISK = { lowShare: 0.1, fullShare: 0.03 };
/** Connections that should stay free for another process, and connections that Postgres reserves. */
const CONNECTIONS = { spare: 10, reserved: 3 };
/** A healthy store answers in less than 10 ms. */
const SLOW = { milliseconds: 250 };
const LAG = { seconds: 30 };
const SKEW = { seconds: 2 };

const isLacking = ({ lacking }: Readings, name: Dependency): Lacking | undefined =>
  lacking.find((one) => one.name === name);

const clockDifference = ({ store, skew }: { store: string; skew: number }) =>
  `The clock of ${store} is ${duration(Math.abs(skew) / 1000)} ${skew > 0 ? 'ahead of' : 'behind'} the clock of this machine`;

const since = ({ since: begun, reason }: Lacking) =>
  begun ? ` (since ${clockTime(begun)})` : reason ? ` (${reason})` : '';

/** Checks of shared dependencies: Postgres, Redis, the disk, certificates and clocks. */
export const storeChecks: readonly Check[] = [
  {
    id: 'postgres-away',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'Accepted objects do not take effect, and most pages of the console are unavailable.',
    firstStep: 'Start Postgres, or correct DATABASE_URL. Every process then resumes by itself.',
    link: '/',
    find(readings) {
      const lack = isLacking(readings, 'postgres');
      if (!lack) return [];
      const requests =
        readings.queue === 'postgres'
          ? 'Requests are refused with 503.'
          : 'After one minute, requests are refused with 503.';
      return [{ sentence: `Postgres does not answer${since(lack)}. ${requests}`, since: lack.since }];
    },
  },
  {
    id: 'redis-away',
    group: 'queue',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'Requests are refused with 503, and accepted objects do not take effect.',
    firstStep: 'Start Redis, or correct REDIS_URL. Every process then resumes by itself.',
    link: '/',
    find(readings) {
      const lack = isLacking(readings, 'redis');
      if (!lack) return [];
      return [
        {
          sentence: `Redis does not answer${since(lack)}. Requests are refused with 503.`,
          since: lack.since,
        },
      ];
    },
  },
  {
    id: 'tables-missing',
    group: 'migrations',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'No process of this release works.',
    firstStep: 'Run the release step: penstock migrate. Every process then resumes by itself.',
    link: '/',
    unless: ['postgres-away'],
    normal: ({ machine }) => (machine?.isMigrated ? 'Postgres has the tables of this release' : undefined),
    find(readings) {
      const lack = isLacking(readings, 'migrations');
      return lack
        ? [{ sentence: 'Postgres does not have the tables of this release.', since: lack.since }]
        : [];
    },
  },
  {
    id: 'queue-away',
    group: 'queue',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'Requests are refused with 503, and accepted objects do not take effect.',
    firstStep:
      'Check that Postgres accepts connections for the queue. If the queue has no tables, run the release step: penstock migrate.',
    link: '/queues',
    unless: ['postgres-away', 'tables-missing'],
    find(readings) {
      const lack = isLacking(readings, 'queue');
      return lack
        ? [{ sentence: `The queue in Postgres does not answer${since(lack)}.`, since: lack.since }]
        : [];
    },
  },
  {
    id: 'producer-away',
    group: 'queue',
    severity: 'critical',
    scope: 'process',
    evaluators: ['fleet', 'process'],
    impact: 'This process cannot add objects to the queue: requests and replays are refused.',
    firstStep: 'The process retries by itself. Its log has the cause.',
    link: '/',
    unless: ['postgres-away', 'redis-away', 'queue-away'],
    find(readings) {
      const lack = isLacking(readings, 'producer');
      return lack
        ? [
            {
              sentence: `This process has no connection by which it adds objects to the queue${since(lack)}.`,
              since: lack.since,
            },
          ]
        : [];
    },
  },
  {
    id: 'postgres-read-only',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'Accepted objects do not take effect.',
    firstStep:
      'The server is a standby, or default_transaction_read_only is on. Set DATABASE_URL to the primary.',
    link: '/',
    find: ({ postgres, own }) =>
      postgres?.isReadOnly || own?.isReadOnly
        ? [{ sentence: 'Postgres is read-only: it refuses every write.' }]
        : [],
  },
  {
    id: 'postgres-rejects-writes',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process'],
    impact: 'Accepted objects do not take effect.',
    firstStep:
      'Free space on the disk of Postgres, repair the disk, or make the server writable. The log of Postgres has the cause. Every process then resumes by itself.',
    link: '/',
    unless: ['postgres-away', 'postgres-read-only'],
    find: ({ rejectsWrites }) =>
      rejectsWrites
        ? [
            {
              sentence: `Postgres answers but refuses writes (since ${clockTime(rejectsWrites.since)}): ${rejectsWrites.reason}.`,
              since: rejectsWrites.since,
            },
          ]
        : [],
  },
  {
    id: 'disk-filling',
    group: 'disk',
    severity: 'warning',
    scope: 'process',
    evaluators: ['fleet', 'machine', 'prometheus'],
    impact:
      'If the disk of Postgres becomes full, Postgres rejects writes or stops. Objects then take no effect, and `web` answers 503 to requests that it cannot store, until there is space. If `tmp` becomes full, syncs fail.',
    firstStep: 'Free space, or lower LEDGER_DAYS or SYNC_SCRATCH_BYTES.',
    link: '/',
    normal({ disks = [], machine }) {
      const free = disks.map((disk) => `${gigabytes(disk.freeBytes)} of ${disk.path}`).join(', ');
      const { unreadDisk } = machine ?? {};
      const host = unreadDisk?.host === undefined ? '' : ` (${unreadDisk.host})`;
      return [
        ...(free === '' ? [] : [{ sentence: `${free} free` }]),
        ...(unreadDisk
          ? [
              {
                subject: 'Postgres',
                sentence: `the disk of Postgres${host} cannot be checked from this machine; monitor it there`,
              },
            ]
          : []),
      ];
    },
    find: ({ disks = [] }) =>
      disks
        .filter(({ freeBytes, sizeBytes }) => freeBytes < sizeBytes * DISK.lowShare)
        .map(({ path, freeBytes, sizeBytes }) => {
          const isFull = freeBytes < sizeBytes * DISK.fullShare;
          return {
            subject: path,
            sentence: `The disk of ${path} is ${isFull ? 'almost full' : 'filling'}: ${Math.round((freeBytes / sizeBytes) * 1000) / 10} % is free (${gigabytes(freeBytes)} of ${gigabytes(sizeBytes)}).`,
            ...(isFull && { severity: 'critical' as const }),
          };
        }),
    alert: {
      name: 'PenstockDiskFilling',
      expr: `min by (instance, disk) (penstock_disk_free_bytes / penstock_disk_size_bytes) < ${DISK.lowShare}`,
      for: '15s',
      summary: `{{ $labels.instance }}: disk {{ $labels.disk }} has {{ $value | humanizePercentage }} free (threshold ${DISK.lowShare * 100}%)`,
      meaning:
        'A disk that a process writes to has less than 10 % free: `data` (`DATA_DIR`, with the embedded Postgres) or `tmp` (`TMPDIR`, where syncs unpack files).',
      diagnose: ['Check `penstock_table_bytes` for the tables that grow, and `du` for other files.'],
      fix: [
        'Free space. Lower `LEDGER_DAYS` to shrink the ledger. Archive old months of events and purchases ([retention](retention.md)). Lower `SYNC_SCRATCH_BYTES` for `tmp`.',
      ],
    },
  },
  {
    id: 'queue-lost',
    group: 'queue',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'process', 'prometheus'],
    impact: 'Objects that were accepted and not yet applied are lost. Later objects are not affected.',
    firstStep:
      'Run `penstock queue losses` for the time range, and ask clients to send the requests of that time again.',
    link: '/queues',
    find: ({ loss }) =>
      loss
        ? [
            {
              sentence: `${whatIsLost(loss)}.`,
              since: new Date(loss.acceptedUntil),
              firstStep: `Ask clients to send the requests of that time again, or send them from your records. Then run: penstock queue confirm-loss ${loss.latest}.`,
            },
          ]
        : [],
    alert: {
      name: 'PenstockQueueLost',
      expr: 'max(penstock_queue_losses_unconfirmed) > 0',
      summary: 'Redis: accepted objects were lost, and the loss is not acknowledged',
      meaning: 'Redis came back empty, or with less than it held.',
      diagnose: [
        '1. Run `penstock queue losses`. It lists each loss with its `number` and its time range.',
        '2. Read the log of Redis: it says what happened to its file.',
      ],
      fix: [
        '1. Ask clients to send the requests of that time range again, or send them from your own records, with the same `Idempotency-Key`. Each request then takes effect once, whether it was lost or not. If a client did not use a key, or the key is older than 24 hours, it must first read `GET /requests/{request_id}`. A queued request that is younger than `LEDGER_DAYS` and has the answer 404 is lost. If the answer to such a request has `unknown`, so many of its objects are lost: send only the objects that are missing. The answer says nothing about direct operations and older requests: compare them with your own records.',
        '2. Run `penstock queue confirm-loss <number>` with the highest `number` that `penstock queue losses` lists. It confirms this loss and all earlier ones, and ends the alert. You do not have to restart any process.',
        '3. To prevent another loss, set `appendonly yes` and `appendfsync always` in Redis, or `QUEUE=postgres`. See [Recover lost requests](redis-loss.md).',
      ],
    },
  },
  {
    id: 'redis-cannot-write',
    group: 'redis',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'prometheus'],
    impact:
      'A crash of Redis would lose accepted objects. If Redis also refuses writes (`MISCONF` in its answers), `web` answers 503 and workers take no jobs until it accepts writes again.',
    firstStep: 'Free disk space on the Redis server.',
    link: '/',
    find: ({ redis }) =>
      redis && !redis.writes ? [{ sentence: 'Redis could not write its file to the disk.' }] : [],
    alert: {
      name: 'PenstockRedisCannotWrite',
      expr: 'max(penstock_redis_persistence_failing) == 1',
      summary: 'Redis: the last write to its disk failed',
      meaning: 'The last attempt of Redis to write its file failed, usually because the disk is full.',
      diagnose: ['Run `redis-cli info persistence`, and read the log of Redis.'],
      fix: [
        'Free space on the disk of Redis. Redis then accepts writes again by itself. If Redis has exited, start it again.',
      ],
    },
  },
  {
    id: 'postgres-connections',
    group: 'postgres',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet'],
    impact: 'When none is left, Postgres refuses connections: processes cannot start, and requests get 503.',
    firstStep: 'Raise max_connections, lower DATABASE_POOL_SIZE, or close other clients.',
    link: '/',
    find({ postgres }) {
      if (!postgres || postgres.most === 0 || postgres.most - postgres.used >= CONNECTIONS.spare) return [];
      const areUsedUp = postgres.used >= postgres.most - CONNECTIONS.reserved;
      return [
        {
          sentence: `The connections of Postgres are ${areUsedUp ? '' : 'nearly '}used up: ${grouped(postgres.used)} of ${grouped(postgres.most)}.`,
          ...(areUsedUp && { severity: 'critical' as const }),
        },
      ];
    },
  },
  {
    id: 'store-slow',
    group: 'stores',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet'],
    impact: 'Requests and workers are slow.',
    firstStep: 'Check the load of its machine and the network.',
    link: '/',
    find: ({ postgres, redis }) =>
      [['Postgres', postgres] as const, ['Redis', redis] as const].flatMap(([name, store]) =>
        store && store.latency >= SLOW.milliseconds
          ? [
              {
                subject: name,
                sentence: `${name} answers in ${grouped(Math.round(store.latency))} ms (threshold ${SLOW.milliseconds} ms).`,
              },
            ]
          : [],
      ),
  },
  {
    id: 'readings-incomplete',
    group: 'stores',
    severity: 'info',
    scope: 'installation',
    evaluators: ['fleet'],
    impact: 'Problems of these kinds are not listed.',
    firstStep: 'Try again. If values are still missing, check the load and the log of Postgres.',
    link: '/',
    unless: ['postgres-away', 'tables-missing'],
    find: ({ unread = [] }) =>
      unread.length > 0
        ? [{ sentence: `Not everything could be read. Postgres did not return: ${unread.join(', ')}.` }]
        : [],
  },
  {
    id: 'replica-behind',
    group: 'replication',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet', 'machine', 'prometheus'],
    impact:
      'A failover now could lose the changes of this period. With `QUEUE=postgres`, a lag of Redis loses no objects.',
    firstStep: 'Check the disk and the network of the replica, and long queries on it.',
    link: '/',
    find: ({ redis, postgres }) =>
      (
        [
          ['Redis', redis?.lagSeconds],
          ['Postgres', postgres?.lagSeconds],
        ] as const
      ).flatMap(([name, lag]) =>
        (lag ?? 0) > LAG.seconds
          ? [
              {
                subject: name,
                sentence: `A replica of ${name} is ${duration(lag!)} behind (threshold ${LAG.seconds} s).`,
              },
            ]
          : [],
      ),
    alert: {
      name: 'PenstockReplicationLag',
      expr: `max by (store) (penstock_replication_lag_seconds) > ${LAG.seconds}`,
      summary: `{{ $labels.store }}: a replica is {{ $value | humanizeDuration }} behind (threshold ${LAG.seconds}s)`,
      meaning: 'A replica of Postgres or Redis is more than 30 s behind.',
      diagnose: ['Run `select * from pg_stat_replication`, or `redis-cli info replication`.'],
      fix: [
        'Fix the disk or the network of the replica. On Postgres, a long query on the replica can delay it.',
      ],
    },
  },
  ...certificateChecks,
  {
    id: 'clock-skew',
    group: 'clock',
    severity: 'warning',
    scope: 'process',
    evaluators: ['machine', 'prometheus'],
    impact:
      'No object is lost, and the order does not change. Times of acceptance, ages in alerts, links, sessions and `Retry-After` are wrong by that amount.',
    firstStep: 'Check NTP on that machine and on the Postgres server.',
    link: '/',
    normal: ({ machine }) =>
      (machine?.clocks ?? []).map(({ store }) => ({
        subject: store,
        sentence: `the clock of ${store} is ours`,
      })),
    find: ({ machine }) =>
      (machine?.clocks ?? [])
        .filter(({ skew }) => Math.abs(skew) >= SKEW.seconds * 1000)
        .map((clock) => ({
          subject: clock.store,
          sentence: `${clockDifference(clock)} (threshold ${SKEW.seconds} s).`,
          firstStep: `Run NTP on this machine and on the server of ${clock.store}.`,
        })),
    alert: {
      name: 'PenstockClockSkew',
      expr: `max by (instance) (abs(penstock_clock_skew_seconds)) > ${SKEW.seconds}`,
      for: '15s',
      summary: `{{ $labels.instance }}: its clock differs from Postgres by {{ $value | humanizeDuration }} (threshold ${SKEW.seconds}s)`,
      meaning: 'The clock of a machine and the clock of Postgres differ by more than 2 s.',
      diagnose: [
        '1. Compare `penstock_clock_skew_seconds` by instance. If one instance differs, its clock is wrong. If all differ alike, the clock of Postgres is wrong.',
        '2. `penstock doctor` reports it for its own machine and for Redis. Run `timedatectl` or `chronyc tracking`.',
      ],
      fix: [
        'Run NTP on that machine. After a virtual machine was paused, its clock can be wrong for up to a minute.',
      ],
    },
  },
];
