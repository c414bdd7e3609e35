import type { createPostgresBackend, QueueOptions } from 'bullmq';
import type pg from 'pg';
import type { Config } from '../platform/config.ts';
import { assertSchemaCompatibility, PostgresConnection, PostgresQueueBackend, Queue } from './bullmq.ts';
import { type Layout, laneName, prefixOf, shardOfLane } from './lanes.ts';
import type { RedisClient } from './open-redis.ts';
import type { Replication } from './replicas.ts';

/** Arguments with which BullMQ's classes connect to the queue: `options` and, as the last argument, `factory`. */
export interface QueueAccess {
  kind: Config['QUEUE'];
  options: Pick<QueueOptions, 'connection' | 'prefix' | 'skipVersionCheck'>;
  layout: Layout;
  /** Typed as absent, because BullMQ's types tie each class to one backend, and Penstock uses both alike. */
  factory: undefined;
  /** Absent if the queue is in Postgres. */
  redis: RedisClient | undefined;
  /** Absent: the answer to an add waits only for the disk of the server, not for replicas. */
  replication?: Replication;
  /** False if an add would fail now, for example because the connection is closed. */
  ready(): boolean;
}

/** The schema of BullMQ's own tables. */
export const QUEUE_SCHEMA = 'bullmq';

/**
 * A connection of BullMQ that repeats the check of the schema after a failed one. BullMQ keeps the failure for the
 * lifetime of the connection, so a lane that is opened while Postgres is unavailable would never work.
 */
class PatientConnection extends PostgresConnection {
  #ready: Promise<void> | undefined;

  override waitUntilReady(): Promise<void> {
    this.#ready ??= this.#checkSchema().catch((error) => {
      this.#ready = undefined;
      throw error;
    });
    return this.#ready;
  }

  async #checkSchema(): Promise<void> {
    const client = await this.pool.connect();
    try {
      await assertSchemaCompatibility(client, this.schema);
    } finally {
      client.release();
    }
    // Listeners that are attached right after the construction are called as well.
    setTimeout(() => this.emit('ready'), 0);
  }
}

/** BullMQ's Postgres backend on a patient connection. */
class PatientBackend extends PostgresQueueBackend {
  readonly #connection: PatientConnection;

  // biome-ignore lint/complexity/useMaxParams: BullMQ's constructor has these parameters.
  constructor(
    connection: PatientConnection,
    name: string,
    options: ConstructorParameters<typeof PostgresQueueBackend>[2],
    clientName: string | undefined,
  ) {
    super(connection, name, options, true, clientName);
    this.#connection = connection;
  }

  override async waitUntilReady(): Promise<void> {
    // BullMQ keeps its first result, so it is asked only once the connection works.
    await this.#connection.waitUntilReady();
    await super.waitUntilReady();
  }
}

/**
 * Creates BullMQ's Postgres backend with `PatientConnection`. The names under which BullMQ lists the connections of
 * workers and of readers of events are those of BullMQ's `createPostgresBackend`.
 */
export const createPatientBackend: typeof createPostgresBackend = (name, options, role = {}) => {
  const workerName = (options as { name?: string }).name;
  const ofWorker = role.withBlockingConnection ? `${name}${workerName ? `:w:${workerName}` : ''}` : undefined;
  const clientName = ofWorker ?? (role.blocking ? `${name}:qe` : undefined);
  return new PatientBackend(new PatientConnection(options.connection), name, options, clientName);
};

/** Returns the pool of a queue in Postgres. */
export const queuePool = ({ options }: Pick<QueueAccess, 'options'>): pg.Pool =>
  options.connection as unknown as pg.Pool;

/** Returns the options with which BullMQ's classes find a lane: the keys of each shard have a prefix of their own. */
export function optionsOfLane({ options, layout }: QueueAccess, lane: number) {
  const shard = shardOfLane(layout, lane);
  return shard === 0 ? options : { ...options, prefix: prefixOf(shard) };
}

/** Opens the queue of a lane. */
export function openLane<Data>(access: QueueAccess, lane: number): Queue<Data> {
  return openQueue(access, laneName(lane), optionsOfLane(access, lane));
}

/**
 * Limits a lane to one active job. Uses a new handle: opening a handle also writes the other settings of the lane,
 * which a store that came back empty has lost as well.
 */
export async function limitLane(access: QueueAccess, lane: number): Promise<void> {
  const queue = openLane(access, lane);
  await queue.setGlobalConcurrency(1).finally(() => queue.close());
}

/** Maximum entries in the event stream of a queue. BullMQ's default is 10,000, and Penstock does not read them. */
const MAX_EVENTS = 200;

/** Opens a queue to read from or add to. Opening a handle writes its options into the settings of the queue. */
export function openQueue<Data>(
  access: QueueAccess,
  name: string,
  where: QueueAccess['options'] = access.options,
): Queue<Data> {
  return openBy(access, name, { ...where, streams: { events: { maxLen: MAX_EVENTS } } });
}

/** Opens a queue for display without writing its settings, which belong to the process that adds to it. */
export function openQueueToShow(access: QueueAccess, name: string, where = access.options): Queue {
  return openBy(access, name, { ...where, skipMetasUpdate: true });
}

function openBy<Data>({ factory }: QueueAccess, name: string, options: QueueOptions): Queue<Data> {
  // BullMQ asks Redis for its version and caches a failed answer for the lifetime of the handle, which is shared and lives as long as its
  // connection.
  const queue = new Queue<Data>(name, { ...options, skipVersionCheck: true }, factory);
  // Errors come back from the calls themselves; without a listener this event would end the process.
  queue.on('error', () => {});
  return queue;
}

/** Maximum number of finished jobs that one call removes. */
const FINISHED_AT_ONCE = 1000;

/**
 * Removes at most 1,000 finished jobs of a queue. Jobs that a process of an earlier release added are kept when they
 * finish, with the personal data in them.
 */
export async function removeFinished(queue: Queue): Promise<void> {
  await queue.clean(0, FINISHED_AT_ONCE, 'completed');
}

/** Empties the event stream of a queue, in which BullMQ repeats the reasons of failures. No process reads it. */
export async function forgetEvents(access: QueueAccess, queue: Queue): Promise<void> {
  // BullMQ trims its log only approximately.
  if (access.redis) return void (await access.redis.del(queue.toKey('events')));
  await queuePool(access).query(`delete from ${QUEUE_SCHEMA}.event where queue = $1`, [queue.name]);
}
