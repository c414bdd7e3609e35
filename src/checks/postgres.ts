import { count, duration } from '../platform/format.ts';
import type { Check } from './check.ts';
import type { Readings } from './readings.ts';

/** Earliest supported release, as server_version_num. */
const RELEASE = { number: 140_000, name: '14' };
/** Age at which a transaction blocks vacuum noticeably. */
const TRANSACTION = { seconds: 300 };
/** A table is bloated if it has more dead rows than `rows`, and they exceed `share` of all its rows. */
const BLOAT = { rows: 50_000, share: 0.3 };

/** Settings without which a crash loses data, with the reason. */
const DURABILITY = {
  fsync: 'a crash of its machine can destroy the database',
  full_page_writes: 'a crash of its machine can destroy pages',
  synchronous_commit: 'a crash loses commits, and with the queue in Postgres also accepted objects',
};

const releaseOf = (version: number) => `Postgres ${Math.floor(version / 10_000)}.${version % 10_000}`;

const isOff = ({ postgres }: Readings, name: string) => postgres?.settings?.[name] === 'off';

/** Checks of the Postgres server: release, settings, pages, transactions, and the tables of the installation. */
export const postgresChecks: readonly Check[] = [
  {
    id: 'postgres-too-old',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Penstock is not tested with this release, and statements may fail.',
    firstStep: `Use Postgres ${RELEASE.name} or newer.`,
    link: '/',
    normal: ({ postgres }) =>
      postgres?.version === undefined ? undefined : `${releaseOf(postgres.version)}, settings are correct`,
    find: ({ postgres }) =>
      postgres?.version !== undefined && postgres.version < RELEASE.number
        ? [{ sentence: `${releaseOf(postgres.version)} is too old.` }]
        : [],
  },
  {
    id: 'postgres-not-durable',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'A crash can lose applied objects, and with `QUEUE=postgres` accepted objects.',
    firstStep: 'Set fsync, full_page_writes and synchronous_commit to on.',
    link: '/',
    find: (readings) =>
      Object.entries(DURABILITY)
        .filter(([name]) => isOff(readings, name))
        .map(([name, reason]) => ({
          subject: name,
          sentence: `${name} is off: ${reason}.`,
          firstStep: `Set ${name} = on.`,
        })),
  },
  {
    id: 'checksums-off',
    group: 'postgres',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Damage on the disk is not detected.',
    firstStep: 'Stop Postgres, run pg_checksums --enable, and start Postgres again.',
    link: '/',
    find(readings) {
      if (!isOff(readings, 'data_checksums')) return [];
      const { version, settings } = readings.postgres!;
      const program = version === undefined ? '' : `, a program of Postgres ${Math.floor(version / 10_000)}`;
      return [
        {
          sentence: 'data_checksums is off: a page that the disk has damaged is read as if it were correct.',
          firstStep: `Stop Postgres and run pg_checksums --enable --pgdata=${settings!.data_directory ?? 'DIRECTORY'}${program}. Then start Postgres again.`,
        },
      ];
    },
  },
  {
    id: 'pages-damaged',
    group: 'postgres',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['fleet', 'machine'],
    impact: 'The rows of these pages are not returned. Objects that need them wait in their lanes.',
    firstStep: 'See "Damage on disk" in docs/runbook.md.',
    link: '/',
    find({ postgres }) {
      const pages = postgres?.damagedPages ?? 0;
      return pages > 0
        ? [{ sentence: `Postgres has read ${count(pages, 'damaged page')}: the checksum is wrong.` }]
        : [];
    },
  },
  {
    id: 'autovacuum-off',
    group: 'postgres',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Statements become slower over time.',
    firstStep: 'Set autovacuum and track_counts to on.',
    link: '/',
    find: (readings) =>
      ['autovacuum', 'track_counts']
        .filter((name) => isOff(readings, name))
        .map((name) => ({
          subject: name,
          sentence: `${name} is off: tables grow, and query plans become stale.`,
          firstStep: `Set ${name} = on.`,
        })),
  },
  {
    id: 'transaction-old',
    group: 'postgres',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['fleet', 'machine'],
    impact: 'The transaction can hold locks that objects wait for, and prevents vacuum, so tables grow.',
    firstStep: 'Find the transaction in pg_stat_activity by xact_start, and end it.',
    link: '/',
    find({ postgres }) {
      const seconds = postgres?.oldestTransactionSeconds ?? 0;
      return seconds > TRANSACTION.seconds
        ? [
            {
              sentence: `A transaction of Postgres has been open for ${duration(seconds)} (threshold ${duration(TRANSACTION.seconds)}).`,
            },
          ]
        : [];
    },
  },
  {
    id: 'partition-missing',
    group: 'partitions',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Events and purchases of a month without a partition are written to the default partition.',
    firstStep:
      'Start a worker, which creates partitions at its start and every hour. Start it before that month begins: rows in the default partition prevent the creation.',
    link: '/',
    normal: ({ machine }) => machine?.missingPartitions && 'the partitions of this month and the next exist',
    find: ({ machine }) =>
      machine?.missingPartitions?.length
        ? [{ sentence: `Missing partition: ${machine.missingPartitions.join(', ')}.` }]
        : [],
  },
  {
    id: 'fence-stuck',
    group: 'fences',
    severity: 'warning',
    scope: 'lane',
    evaluators: ['machine'],
    impact: 'Objects that follow these fences wait.',
    firstStep: 'Every lane needs a worker: see penstock status, and PenstockLaneStuck in docs/runbook.md.',
    link: '/#lanes',
    normal: ({ machine }) => machine?.fences && 'no lane waits at a fence',
    find({ machine }) {
      const { fences = 0, seconds = 0 } = machine?.fences ?? {};
      return fences > 0
        ? [{ sentence: `Lanes wait at ${count(fences, 'fence')}, for up to ${duration(seconds)}.` }]
        : [];
    },
  },
  {
    id: 'table-bloated',
    group: 'bloat',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Statements read the dead rows, so they become slower.',
    firstStep: 'Run vacuum analyze on the table.',
    link: '/',
    normal: ({ machine }) => machine?.tables && 'no table has many dead rows',
    find: ({ machine }) =>
      (machine?.tables ?? [])
        .filter(
          ({ liveRows, deadRows }) => deadRows > BLOAT.rows && deadRows > BLOAT.share * (liveRows + deadRows),
        )
        .map(({ table, deadRows }) => ({
          subject: table,
          sentence: `${table} has ${count(deadRows, 'dead row')}.`,
          firstStep: `Run vacuum analyze ${table}. Check for a long transaction, and run autovacuum more often (autovacuum_naptime).`,
        })),
  },
];
