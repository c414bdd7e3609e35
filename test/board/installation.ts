import { v7 as uuidv7 } from 'uuid';
import { startBoard } from '../../src/board/server.ts';
import type { AcceptedEvent } from '../../src/jobs/envelope.ts';
import { type Config, readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { Queue } from '../../src/queue/bullmq.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../../src/queue/connection.ts';
import { DEAD_LETTER_QUEUE, type LaneProducer, laneName, layoutOf } from '../../src/queue/lanes.ts';
import { openProducer } from '../../src/queue/producer.ts';
import type { Context } from '../../src/resources/resource.ts';
import type { Connection, Database } from '../../src/store/database.ts';
import { forDeadLetters, locateDeadLetters, markReplayed } from '../../src/store/dead-letters.ts';
import { forEachWorkspace } from '../../src/store/distributed.ts';
import { type FailedObject, insertDeadLetters } from '../../src/store/failed-objects.ts';
import type { QueueLoss } from '../../src/store/installation.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { startDeadLetters } from '../../workers/upkeep/dead-letters.ts';
import { createDatabase, startRedis } from '../setup/fixtures.ts';

export const log = createLog('test', 'silent');
/** Actor of the audit entries. */
export const tester = { kind: 'operator', name: 'tester', via: 'command_line' } as const;
export const account = { user: 'admin', password: 'correct horse' };

/**
 * Creates a database, a queue of this kind, and functions that start parts of Penstock. `stop` ends all of them.
 *
 * @param made an existing database to use, and more settings
 */
export async function createInstallation(
  kind: QueueConnection['kind'],
  made: { url?: string; env?: Record<string, string> } = {},
) {
  const url = made.url ?? (await createDatabase()).url;
  const redis = kind === 'redis' ? await startRedis() : undefined;
  const env = {
    DATABASE_URL: url,
    ...(redis && { REDIS_URL: redis.url }),
    LANES: '4',
    BOARD_PORT: '0',
    // A busy test machine must not cause a 503.
    QUEUE_TIMEOUT_MS: '3000',
    LOCK_DURATION_MS: '500',
    STALLED_INTERVAL_MS: '200',
    ...made.env,
  };
  const config: Config = readConfig(env);
  const database = openDatabase(url, 4);
  const connection = connectProducer(config, url);
  const producer = openProducer(connection, {
    ...{ pool: database.pool, timeout: config.QUEUE_TIMEOUT_MS, log },
  });
  const queues = [
    DEAD_LETTER_QUEUE,
    ...Array.from({ length: config.LANES }, (_, lane) => laneName(lane)),
  ].map((name) => new Queue(name, connection.options, connection.factory));
  for (const queue of queues) await queue.waitUntilReady();
  const stops: (() => Promise<void>)[] = [
    async () => {
      await Promise.all(queues.map((queue) => queue.close()));
      await producer.stop();
      await connection.stop();
      await database.stop();
    },
  ];

  return {
    env,
    config,
    database,
    connection,
    producer,
    deadLetterQueue: queues[0]!,
    laneQueues: queues.slice(1),
    resourceContext: {
      ...{ database, config, actor: tester, consoleUrl: '' },
      databaseUrl: () => url,
      withQueue: (work) => work({ connection, producer, layout: layoutOf(config) }),
      withRenderer: () => Promise.reject(new Error('this context renders no templates')),
      requirePermit() {},
      hasPermit: () => true,
      enqueue: () => Promise.reject(new Error('this context adds no objects')),
    } satisfies Context,
    replayContext: { database, producer, lanes: config.LANES, actor: tester },

    /** Starts the dead-letter part of a worker process. */
    startWorker(lanes: LaneProducer = producer) {
      const own = connectWorker(config, url);
      const context = { connection: own, database, producer: lanes, lanes: config.LANES, log, config };
      const deadLetters = startDeadLetters(context);
      const stop = async () => {
        await deadLetters.stop();
        await own.stop();
      };
      stops.push(stop);
      return { ...deadLetters, stop: () => stops.splice(stops.indexOf(stop), 1)[0]!() };
    },

    async startBoard(loss: () => QueueLoss | undefined = () => undefined) {
      const stores = { database, connection, producer, loss };
      const board = await startBoard({ config, account, log }, stores, { lacking: () => [] });
      stops.push(board.stop);
      return board;
    },

    /** Returns all envelopes in lanes with lane and job id, without their checksums. */
    async envelopes() {
      const result = await Promise.all(queues.slice(1).map((queue) => queue.getJobs()));
      return result.flatMap((jobs, lane) =>
        jobs.map(({ id, data: { checksum: _, ...envelope } }) => ({ lane, id, envelope })),
      );
    },

    async stop() {
      for (const stop of stops.reverse()) await stop();
    },
  };
}

export type Installation = Awaited<ReturnType<typeof createInstallation>>;

export type FailedEvent = FailedObject & { object: AcceptedEvent };

/** Creates an event that could not be applied. */
export function failedEvent(change: Partial<FailedEvent> = {}): FailedEvent {
  const id = uuidv7();
  const object: AcceptedEvent = {
    id,
    index: 0,
    create: true,
    kind: 'events',
    identifier: { external_id: `user-${id}` },
    name: 'ordered',
    time: '2026-01-02T03:04:05.000Z',
    properties: { colour: 'teal' },
  };
  const requestId = `request-${id}`;
  const common = { id, workspaceId: uuidv7(), requestId, kind: object.kind, jobName: 'users.track' };
  return {
    ...common,
    identifiers: [{ external_id: `user-${id}` }],
    object,
    reason: 'no such column',
    ...change,
  };
}

/** Commits dead letters in one transaction, like a worker does for an envelope. */
export async function commit(database: Database, ...rows: FailedObject[]): Promise<string[]> {
  await inTransaction(database, (tx) =>
    forEachWorkspace(tx, { given: rows, workspaceOf: ({ workspaceId }) => workspaceId }, async (some) => {
      await insertDeadLetters(tx, some);
      return [];
    }),
  );
  return rows.map(({ id }) => id);
}

/** Marks dead letters as replayed, like a worker does after a successful replay. */
export async function commitReplayed(database: Database, ids: string[]): Promise<void> {
  await inTransaction(database, async (tx) =>
    forDeadLetters(tx, await locateDeadLetters(tx, ids), async (some) => [await markReplayed(tx, some)]),
  );
}

async function inTransaction({ pool }: Database, work: (tx: Connection) => Promise<unknown>): Promise<void> {
  const tx = await pool.connect();
  try {
    await tx.query('begin');
    await work(tx);
    await tx.query('commit');
  } finally {
    tx.release();
  }
}

/** Reads state, number of replays and reason of a dead letter. */
export async function read({ pool }: Database, id: string) {
  const { rows } = await pool.query('select state, replays, reason, object from dead_letters where id = $1', [
    id,
  ]);
  return rows[0];
}
