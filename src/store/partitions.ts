import { rest } from '../platform/poll.ts';
import { type ArchiveFile, setFileState } from './archive-files.ts';
import type { Connection, Pool } from './database.ts';
import { isDistributed } from './distributed.ts';
import type { ActivityTable } from './erasures.ts';
import { keyChecksum } from './retention.ts';
import { inTransaction } from './transactions.ts';

/** Creates the partitions of this month and the next two, if they are missing. */
export async function ensurePartitions(pool: Pool): Promise<void> {
  await pool.query('select ensure_month_partitions(now(), 2)');
}

/** Uses the names that `ensure_month_partitions` assigns. */
const findMissingStatement = `
  select wanted.name
  from (
    select kind || '_' || to_char(
      date_trunc('month', now(), 'UTC') at time zone 'UTC' + make_interval(months => step), 'YYYY_MM') as name
    from unnest(array['events', 'purchases']) as kind
    cross join generate_series(0, $1::integer) as step
  ) as wanted
  where to_regclass(wanted.name) is null
  order by wanted.name`;

/** Returns the missing partitions of this month and the next `months` months. */
export async function findMissingPartitions(pool: Pick<Pool, 'query'>, months: number): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(findMissingStatement, [months]);
  return rows.map(({ name }) => name);
}

interface PartitionSize {
  table: string;
  partition: string;
  bytes: number;
}

const readSizesStatement = `
  select
    pg_inherits.inhparent::regclass::text as "table",
    pg_class.relname as partition,
    pg_total_relation_size(pg_class.oid)::float8 as bytes
  from pg_inherits
  join pg_class on pg_class.oid = pg_inherits.inhrelid
  where pg_class.relkind = 'r' and pg_class.relnamespace = 'public'::regnamespace
  order by pg_class.relname desc
  limit $1::integer`;

/** Returns the partitions with the last names of the tables that are partitioned by month. */
export async function readPartitionSizes(pool: Pick<Pool, 'query'>, limit: number): Promise<PartitionSize[]> {
  const { rows } = await pool.query<PartitionSize>({
    name: 'read-partition-sizes',
    text: readSizesStatement,
    values: [limit],
  });
  return rows;
}

/** A partition of one month, with the name that `ensure_month_partitions` assigns. */
export interface Partition {
  name: string;
  kind: ActivityTable;
  /** Month, for example `2026-01`. */
  month: string;
  /** Whether the partition was detached and not dropped yet. */
  isDetached: boolean;
}

const listPartitionsStatement = `
  select pg_class.relname as name, not pg_class.relispartition as "isDetached"
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace and pg_class.relkind = 'r'
    and pg_class.relname ~ '^(events|purchases)_[0-9]{4}_(0[1-9]|1[0-2])$'
  order by pg_class.relname`;

/** Returns every monthly partition, including detached ones that are not dropped yet. */
export async function listPartitions(pool: Pool): Promise<Partition[]> {
  const { rows } = await pool.query<Pick<Partition, 'name' | 'isDetached'>>({
    text: listPartitionsStatement,
  });
  return rows.map(({ name, isDetached }) => {
    const [kind, year, month] = name.split('_') as [ActivityTable, string, string];
    return { name, kind, month: `${year}-${month}`, isDetached };
  });
}

/** Returns the partition for rows of months without their own partition. */
export const defaultOf = (kind: ActivityTable) => `${kind}_default`;

const isAttachedStatement = `
  select pg_class.relispartition as attached from pg_class where pg_class.oid = to_regclass($1::text)`;

/** Returns the partition with the rows of a month: its own, or the default one if it has none. */
export async function partitionWith(
  pool: Pool,
  { kind, month }: Pick<Partition, 'kind' | 'month'>,
): Promise<string> {
  const name = `${kind}_${month.replace('-', '_')}`;
  const { rows } = await pool.query<{ attached: boolean }>({ text: isAttachedStatement, values: [name] });
  return rows[0]?.attached ? name : defaultOf(kind);
}

/** Reads by primary key, with one lookup per workspace. */
const ownersStatement = (name: string) => `
  with recursive owners as (
    (select ${name}.workspace_id from ${name} order by ${name}.workspace_id limit 1)
    union all
    select following.workspace_id
    from owners
    cross join lateral (
      select ${name}.workspace_id
      from ${name}
      where ${name}.workspace_id > owners.workspace_id
      order by ${name}.workspace_id
      limit 1
    ) as following
  )
  select owners.workspace_id as id from owners`;

/** Variant for a distributed Postgres, which cannot step from one workspace to the next across shards. */
const distributedOwnersStatement = (name: string) =>
  `select distinct ${name}.workspace_id as id from ${name} order by ${name}.workspace_id`;

/** Returns the workspaces that have rows in a partition. */
export async function ownersIn(pool: Pool, { name }: Pick<Partition, 'name'>): Promise<string[]> {
  const text = (await isDistributed(pool)) ? distributedOwnersStatement(name) : ownersStatement(name);
  const { rows } = await pool.query<{ id: string }>({ text });
  return rows.map(({ id }) => id);
}

/** Milliseconds to wait for the lock, and to let other statements continue before the next attempt. */
const LOCK_TIMEOUT = 100;
const PAUSE = 400;
const TRIES = 240;

const isOldStatement =
  "select $1::text < to_char((now() at time zone 'UTC') - interval '1 month', 'YYYY-MM') as old";

/**
 * Detaches a partition from its table, unless it is for this month or the previous one. Waits 100 ms for the
 * lock, then lets other statements continue and retries, so that readers and writers never wait longer.
 * (`concurrently` is not possible: Postgres rejects it if there is a default partition.)
 *
 * @throws {Error} if other transactions have locked the table for two minutes
 */
export async function detachPartition(
  pool: Pool,
  { name, kind, month }: Partition,
  { signal, tries = TRIES }: { signal?: AbortSignal | undefined; tries?: number } = {},
): Promise<void> {
  async function detach(tx: Connection): Promise<void> {
    const { rows } = await tx.query<{ old: boolean }>({ text: isOldStatement, values: [month] });
    if (!rows[0]!.old) throw new Error(`${name} is not old enough to be detached`);
    await tx.query(`alter table ${kind} detach partition ${name}`);
  }
  for (let tried = 1; ; tried += 1) {
    signal?.throwIfAborted();
    try {
      await inTransaction(pool, detach, { statement: 10_000, lock: LOCK_TIMEOUT });
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== '55P03') throw error;
      if (tried >= tries)
        throw new Error(
          `${name} could not be detached: a long transaction, as a backup is, holds ${kind}; the next run goes on`,
          { cause: error },
        );
    }
    await rest(PAUSE, signal);
  }
}

/** Scans the partition, which has no other readers or writers. */
const countDetachedStatement = (name: string) => `
  select ${name}.workspace_id as "workspaceId", count(*)::float8 as rows, ${keyChecksum(`${name}.id`)} as checksum
  from ${name}
  group by ${name}.workspace_id
  order by ${name}.workspace_id`;

interface CountedOwner {
  workspaceId: string;
  rows: number;
  /** Checksum of the ids, which equals the sum of the checksums of archive files with the same rows. */
  checksum: string;
}

/** Milliseconds. A month with very many rows takes minutes, but not hours. */
const COUNT_LIMITS = { statement: 7_200_000, lock: 10_000 };

export async function countDetached(pool: Pool, { name }: Partition): Promise<CountedOwner[]> {
  return inTransaction(
    pool,
    async (tx) => (await tx.query<CountedOwner>({ text: countDetachedStatement(name) })).rows,
    COUNT_LIMITS,
  );
}

/** Milliseconds. If a backup or another reader holds the partition, the next run drops it. */
const DROP_LIMITS = { statement: 120_000, lock: 10_000 };

/** Drops a detached partition and records that the rows of its files are removed, in one transaction. */
export async function dropDetached(
  pool: Pool,
  { name }: Partition,
  files: readonly ArchiveFile[],
): Promise<void> {
  async function drop(tx: Connection): Promise<void> {
    const { rows } = await tx.query<{ attached: boolean }>({ text: isAttachedStatement, values: [name] });
    if (rows[0]?.attached) throw new Error(`${name} is not detached`);
    await tx.query(`drop table if exists ${name}`);
    for (const file of files) await setFileState(tx, file, { state: 'removed' });
  }
  await inTransaction(pool, drop, DROP_LIMITS);
}
