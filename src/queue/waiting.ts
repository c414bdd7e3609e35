import type { Queue } from 'bullmq';
import type { Pool } from 'pg';
import type { QueueConnection } from './connection.ts';

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
  /** The first of all. */
  first(): Promise<WaitingJob<Data> | undefined>;
}

/**
 * BullMQ's Postgres backend gives the last of the waiting jobs where the first are asked for, unless all are
 * (`get_range` counts from the newest, `getRanges` turns that around), and a job at a time. So Postgres is asked here.
 */
export function waitingIn<Data>(connection: QueueConnection, queue: Queue<Data>): Waiting<Data> {
  const looks = connection.kind === 'postgres' ? ofPostgres<Data>(connection, queue.name) : ofRedis(queue);
  return {
    ...looks,
    async first() {
      const [id] = await looks.ids(1);
      if (id === undefined) return undefined;
      const [job] = await looks.jobs([id]);
      return job;
    },
  };
}

type Looks<Data> = Pick<Waiting<Data>, 'ids' | 'jobs'>;

function ofRedis<Data>(queue: Queue<Data>): Looks<Data> {
  return {
    ids: (most) => queue.getRanges(['waiting'], 0, most - 1, true),
    jobs: (ids) =>
      Promise.all(
        ids.map(async (id) => {
          const job = await queue.getJob(id);
          return job && { id, data: job.data as Data, timestamp: job.timestamp };
        }),
      ),
  };
}

/** As `move_to_active` chooses, by the index that it uses. */
const selectIds = `
  select id from job where queue = $1 and state = 'waiting' order by priority, seq limit $2`;

const selectJobs = `
  select id, data, added_at_ms::float8 as timestamp from job where queue = $1 and id = any ($2::text[])`;

function ofPostgres<Data>({ options }: QueueConnection, queueName: string): Looks<Data> {
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
  };
}
