import { type QueueAccess, queuePool } from './bullmq-queues.ts';
import type { LaneStore, OldestEnvelope, StoredEnvelope } from './lane-store.ts';
import { createLaneStore, type LaneBackend } from './lane-store-bullmq.ts';

/** Lanes in the tables of BullMQ's Postgres backend. */
export function openPostgresLanes(access: QueueAccess): LaneStore {
  return createLaneStore(access, createPostgresBackend(access));
}

/** As `move_to_active` chooses, by the index that it uses. */
const selectIds = `
  select id from job where queue = $1 and state = 'waiting' order by priority, seq limit $2`;

/**
 * The same behind a job in work, in one look. Of one that is held by somebody else, or by nobody, there is no row.
 */
const selectWindow = `
  select array(${selectIds}) as ids
  from job held
  where held.queue = $1 and held.id = $3 and held.state = 'active' and held.lock_token = $4`;

/**
 * By primary key. Data is measured as it is stored. How much that is which is compressed is only known when it is
 * unpacked, so that a job of it counts as $4 bytes at least.
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

/** 4 MB, more than which an envelope has seldom, by as many as were read at once before their sizes were asked for. */
const COMPRESSED_BYTES = 131_072;

/**
 * By BullMQ's own function, which leaves a job alone that somebody holds. Nothing is removed, and no row returned, when
 * the lease is lost.
 */
const completeJobs = `
  select remove($1, ids.id, false) from unnest($2::text[]) as ids (id)
  where exists (
    select from job where queue = $1 and id = $3 and state = 'active' and lock_token = $4
  )`;

/** As the search for stalled jobs finds them: marked before, and their locks run out. */
const endLeases = `
  with ended as (
    update job set lock_token = null, locked_until_ms = 0, stalled_marked = true
    where queue = $1 and state = 'active'
  )
  delete from meta where queue = $1 and field = 'stalled-check'`;

/** One lane has one job in work at a time. */
const oldestColumns = `
  id, added_at_ms::float8 as timestamp,
  greatest(0, extract(epoch from clock_timestamp())::float8 * 1000 - added_at_ms) as age`;

const selectOldest = `
  (select ${oldestColumns} from job where queue = $1 and state = 'active' limit 1)
  union all
  (select ${oldestColumns} from job
    where queue = $1 and state = 'waiting' order by priority, seq limit 1)`;

/**
 * BullMQ's Postgres backend gives the last of the waiting jobs where the first are asked for, unless all are, and a job
 * at a time. `get_range` counts from the newest, `getRanges` turns that around. So Postgres is asked here.
 */
function createPostgresBackend(access: QueueAccess): LaneBackend {
  const pool = queuePool(access);

  const oldest: LaneBackend['oldest'] = async ({ name }) => {
    const { rows } = await pool.query<OldestEnvelope>(selectOldest, [name]);
    return rows[0];
  };

  return {
    async head({ name }, most) {
      const { rows } = await pool.query<{ id: string }>(selectIds, [name, most]);
      return rows.map(({ id }) => id);
    },
    async window({ name }, { id, token }, most) {
      const { rows } = await pool.query<{ ids: string[] }>(selectWindow, [name, most, id, token]);
      return rows[0]?.ids;
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
    oldest,
    async endLease({ name }) {
      await pool.query(endLeases, [name]);
    },
    async countWaiting(queues) {
      const counts = await Promise.all(queues.map((queue) => queue.getWaitingCount()));
      return counts.reduce((sum, count) => sum + count, 0);
    },
    async oldestOf(queues) {
      const found = await Promise.all(queues.map(oldest));
      const times = found.flatMap((one) => (one ? [one.timestamp] : []));
      return times.length === 0 ? undefined : Math.min(...times);
    },
  };
}
