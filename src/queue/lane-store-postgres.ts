import { type QueueAccess, queuePool } from './bullmq-queues.ts';
import type { LaneSample, LaneStore, OldestEnvelope, StoredEnvelope } from './lane-store.ts';
import { createLaneStore, type LaneBackend } from './lane-store-bullmq.ts';

/** Lanes in the tables of BullMQ's Postgres backend. */
export function openPostgresLanes(access: QueueAccess): LaneStore {
  return createLaneStore(access, createPostgresBackend(access));
}

/** Selects in the order in which BullMQ's `move_to_active` takes jobs, with the same index. */
const selectIds = `
  select id from job where queue = $1 and state = 'waiting' order by priority, seq limit $2`;

/** Selects the same ids under a lease, as one text. Returns no row if the token does not hold the lease. */
const selectWindow = `
  select array_to_string(array(${selectIds}), E'\\n') as ids
  from job held
  where held.queue = $1 and held.id = $3 and held.state = 'active' and held.lock_token = $4`;

/**
 * Selects a job from each of $2 equal sections of the waiting jobs, with the size of its stored data, and in each row
 * the number of all waiting jobs. The place within a section is random, as on Redis.
 */
const selectSample = `
  select distinct on (section) id, bytes, waiting
  from (
    select
      id, pg_column_size(data) as bytes, waiting,
      floor(place * least($2::float8, waiting) / waiting) as section
    from (
      select
        id, data,
        row_number() over (order by priority, seq) - 1 as place,
        count(*) over () as waiting
      from job where queue = $1 and state = 'waiting'
    ) as placed
  ) as divided
  order by section, random()`;

/**
 * Selects jobs by primary key until their data has $3 bytes. The size is that of the stored form. Compressed data
 * counts as at least $4 bytes, because Postgres has to decompress a value to measure it.
 */
const selectJobs = `
  select sized.id, sized.data, sized.timestamp
  from (
    select
      given.place, job.id, job.data, job.added_at_ms::float8 as timestamp,
      sum(case
        when pg_column_compression(job.data) is null then pg_column_size(job.data)
        else greatest(pg_column_size(job.data), $4::float8)
      end) over (order by given.place rows between unbounded preceding and 1 preceding) as before
    from unnest($2::text[]) with ordinality as given (id, place)
    left join job on job.queue = $1 and job.id = given.id
  ) as sized
  where coalesce(sized.before, 0) < $3::float8
  order by sized.place`;

/** Bytes for which a compressed envelope counts at least, because its size without compression is unknown. */
const COMPRESSED_BYTES = 131_072;

/**
 * Removes jobs with BullMQ's own function, which keeps a job that is locked. Returns no row, and removes no job, if
 * the lease is lost.
 */
const completeJobs = `
  select remove($1, ids.id, false) from unnest($2::text[]) as ids (id)
  where exists (
    select from job where queue = $1 and id = $3 and state = 'active' and lock_token = $4
  )`;

/** Prepares active jobs for the next search for stalled jobs: they are marked, and their locks are expired. */
const endLeases = `
  with ended as (
    update job set lock_token = null, locked_until_ms = 0, stalled_marked = true
    where queue = $1 and state = 'active'
  )
  delete from meta where queue = $1 and field = 'stalled-check'`;

/** A lane has at most one active job. */
const oldestColumns = `
  id, added_at_ms::float8 as timestamp,
  greatest(0, extract(epoch from clock_timestamp())::float8 * 1000 - added_at_ms) as age`;

const selectOldest = `
  (select ${oldestColumns} from job where queue = $1 and state = 'active' limit 1)
  union all
  (select ${oldestColumns} from job
    where queue = $1 and state = 'waiting' order by priority, seq limit 1)`;

/**
 * Reads jobs with statements of its own. For the first n waiting jobs, `getRanges` of BullMQ's Postgres backend
 * returns the last n, because `get_range` counts from the newest job. It also reads one job per statement.
 */
function createPostgresBackend(access: QueueAccess): LaneBackend {
  const pool = queuePool(access);

  const oldest: LaneBackend['oldest'] = async ({ name }) => {
    const { rows } = await pool.query<OldestEnvelope>(selectOldest, [name]);
    return rows[0];
  };

  return {
    async head({ name }, max) {
      const { rows } = await pool.query<{ id: string }>(selectIds, [name, max]);
      return rows.map(({ id }) => id);
    },
    async window({ name }, { id, token }, max) {
      const { rows } = await pool.query<{ ids: string }>(selectWindow, [name, max, id, token]);
      const ids = rows[0]?.ids;
      return ids === '' ? [] : ids?.split('\n');
    },
    async read({ name }, ids, bytes) {
      const { rows } = await pool.query<StoredEnvelope | { id: null }>(selectJobs, [
        ...[name, ids, bytes, COMPRESSED_BYTES],
      ]);
      return rows.map((row) => (row.id === null ? undefined : row));
    },
    async complete({ name }, { id, token }, ids) {
      if (ids.length === 0) return true;
      const { rowCount } = await pool.query(completeJobs, [name, ids, id, token]);
      return rowCount !== 0;
    },
    async sample({ name }, max) {
      const { rows } = await pool.query<LaneSample['envelopes'][number] & { waiting: string }>(selectSample, [
        name,
        max,
      ]);
      return {
        waiting: Number(rows[0]?.waiting ?? 0),
        envelopes: rows.map(({ id, bytes }) => ({ id, bytes })),
      };
    },
    oldest,
    async endLease({ name }) {
      await pool.query(endLeases, [name]);
    },
    async countWaiting(queues) {
      const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
      return counts.reduce((sum, count) => sum + count, 0);
    },
    async oldestOf(queues) {
      const oldestJobs = await Promise.all(queues.map(oldest));
      const times = oldestJobs.flatMap((one) => (one ? [one.timestamp] : []));
      return times.length === 0 ? undefined : Math.min(...times);
    },
  };
}
