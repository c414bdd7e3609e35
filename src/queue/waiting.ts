import type { Queue } from 'bullmq';
import type { Pool } from 'pg';
import { type Trace, traceOf } from '../jobs/traces.ts';
import { type Service, within } from '../platform/lifecycle.ts';
import { openLanes, type QueueConnection } from './connection.ts';
import { QueueUnavailable } from './lanes.ts';
import { decodeEnvelope, type WireEnvelope } from './wire.ts';

/** A job that waits in a queue. */
export interface WaitingJob<Data> {
  id: string;
  data: Data;
  /** When it was added, in epoch milliseconds. */
  timestamp: number;
}

/** Looks at what waits in one queue, in the order in which it is handed out. */
export interface Waiting<Data> {
  /** Ids of the first so many jobs. */
  ids(most: number): Promise<string[]>;
  /** These jobs, each in its place; one that is gone is undefined. */
  jobs(ids: string[]): Promise<(WaitingJob<Data> | undefined)[]>;
  /** Takes these jobs away, as far as they still wait. */
  remove(ids: string[]): Promise<void>;
  /** The one in work, else the first that waits, without its data: that may be 4 MB, and whoever looks does so often. */
  oldest(): Promise<Omit<WaitingJob<Data>, 'data'> | undefined>;
}

/**
 * BullMQ's Postgres backend gives the last of the waiting jobs where the first are asked for, unless all are
 * (`get_range` counts from the newest, `getRanges` turns that around), and a job at a time. So Postgres is asked here.
 */
export function waitingIn<Data>(connection: QueueConnection, queue: Queue<Data>): Waiting<Data> {
  return connection.kind === 'postgres'
    ? ofPostgres<Data>(connection, queue.name)
    : ofRedis(connection, queue);
}

function ofRedis<Data>({ redis }: QueueConnection, queue: Queue<Data>): Waiting<Data> {
  return {
    ids: (most) => queue.getRanges(['waiting'], 0, most - 1, true),
    jobs: (ids) =>
      Promise.all(
        ids.map(async (id) => {
          const job = await queue.getJob(id);
          return job && { id, data: job.data as Data, timestamp: job.timestamp };
        }),
      ),
    async remove(ids) {
      await Promise.all(ids.map((id) => queue.remove(id, { removeChildren: false })));
    },
    async oldest() {
      const [[inWork], [next]] = await Promise.all([
        queue.getRanges(['active'], 0, 0, true),
        queue.getRanges(['waiting'], 0, 0, true),
      ]);
      const id = inWork ?? next;
      if (id === undefined) return undefined;
      const timestamp = await redis!.hget(queue.toKey(id), 'timestamp');
      return timestamp === null ? undefined : { id, timestamp: Number(timestamp) };
    },
  };
}

/** As `move_to_active` chooses, by the index that it uses. */
const selectIds = `
  select id from job where queue = $1 and state = 'waiting' order by priority, seq limit $2`;

const selectJobs = `
  select id, data, added_at_ms::float8 as timestamp from job where queue = $1 and id = any ($2::text[])`;

/** BullMQ's own function, which leaves a job alone that somebody holds. */
const removeJobs = `
  select remove($1, ids.id, false) from unnest($2::text[]) as ids (id)`;
/** One lane has one job in work at a time. */
const selectOldest = `
  (select id, added_at_ms::float8 as timestamp from job where queue = $1 and state = 'active' limit 1)
  union all
  (select id, added_at_ms::float8 as timestamp from job
    where queue = $1 and state = 'waiting' order by priority, seq limit 1)`;

function ofPostgres<Data>({ options }: QueueConnection, queueName: string): Waiting<Data> {
  const pool = options.connection as unknown as Pool;
  return {
    async ids(most) {
      const { rows } = await pool.query<{ id: string }>(selectIds, [queueName, most]);
      return rows.map(({ id }) => id);
    },
    async jobs(ids) {
      const { rows } = await pool.query<WaitingJob<Data>>(selectJobs, [queueName, ids]);
      const found = new Map(rows.map((row) => [row.id, row]));
      return ids.map((id) => found.get(id));
    },
    async remove(ids) {
      await pool.query(removeJobs, [queueName, ids]);
    },
    async oldest() {
      const { rows } = await pool.query<Omit<WaitingJob<Data>, 'data'>>(selectOldest, [queueName]);
      return rows[0];
    },
  };
}

/** Envelopes that are read at once: one may have 4 MB. */
const AT_ONCE = 8;

/** Envelopes of a lane that are counted before one. */
export const MOST_COUNTED = 1000;

/** Where an envelope stands in its lane. */
export interface Standing {
  /** Envelopes before it; undefined: more than are counted, or it has just left. */
  ahead: number | undefined;
  /** The one that the lane works, or will work next. */
  first: { id: string; timestamp: number } | undefined;
}

/** Looks for requests in what waits in the lanes or is in work: ids first, then the envelopes of the time in question. */
export function createWaitingSearch(connection: QueueConnection, lanes: number, timeout: number) {
  const queues = openLanes<WireEnvelope>(connection, lanes);

  /**
   * The envelopes with ids of the range that carry objects of the request.
   * @throws {QueueUnavailable}
   */
  async function find(
    requestId: string,
    workspaceId: string,
    [from, to]: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const found = await Promise.all(queues.map((queue, lane) => search(queue, lane)));
      return found.flat();
    } catch (error) {
      throw new QueueUnavailable('the queue did not say what waits', { cause: error });
    }

    async function search(queue: (typeof queues)[number], lane: number) {
      // What is taken meanwhile is found where it comes to, since that is looked at last.
      const ids = await within(timeout, queue.getRanges(['waiting', 'active'], 0, -1));
      const candidates = ids.filter((id) => id >= from && id <= to).sort();
      const carrying: { envelopeId: string; lane: number; trace: Trace }[] = [];
      for (let start = 0; start < candidates.length; start += AT_ONCE) {
        const jobs = candidates.slice(start, start + AT_ONCE).map((id) => queue.getJob(id));
        for (const job of await within(timeout, Promise.all(jobs))) {
          const trace = job && traceOf(decodeEnvelope(job.data), requestId, workspaceId);
          if (trace) carrying.push({ envelopeId: job.id!, lane, trace });
        }
      }
      return carrying;
    }
  }

  /**
   * What stands before an envelope in its lane.
   * @throws {QueueUnavailable}
   */
  async function standing(lane: number, envelopeId: string): Promise<Standing> {
    if (!connection.ready()) throw new QueueUnavailable('the queue is not connected');
    try {
      const queue = waitingIn(connection, queues[lane]!);
      const [first, ids] = await within(timeout, Promise.all([queue.oldest(), queue.ids(MOST_COUNTED)]));
      const place = ids.indexOf(envelopeId);
      const inWork = first !== undefined && !ids.includes(first.id) ? 1 : 0;
      if (first?.id === envelopeId) return { ahead: 0, first };
      return { ahead: place < 0 ? undefined : place + inWork, first };
    } catch (error) {
      throw new QueueUnavailable('the queue did not say what waits', { cause: error });
    }
  }

  const service: Service = {
    name: 'waiting search',
    async stop() {
      await Promise.all(queues.map((queue) => queue.close()));
    },
  };
  return { ...service, find, standing };
}
