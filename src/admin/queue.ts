import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import type { Config } from '../platform/config.ts';
import { connectProducer, QUEUE_SCHEMA, type QueueConnection, queueKind } from '../queue/connection.ts';
import { mendAndReplay, NotMended, type ReplayContext, replayDeadLetters } from '../queue/dead-letters.ts';
import { joinInstallation } from '../queue/installation.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { openProducer, type PlacedProducer } from '../queue/open-producer.ts';
import { type Layout, type LayoutSettings, layoutOf } from '../queue/shards.ts';
import type { Pool } from '../store/database.ts';
import { readSpread } from '../store/installation.ts';
import { commandLine } from './audit.ts';
import { describeFailure, Refusal } from './command.ts';
import type { Installation } from './lookup.ts';

/** A person at a terminal waits longer than a request at the edge may, for which the setting is made. */
export const QUEUE_TIMEOUT_MS = 10_000;

const CONNECT_TIMEOUT_MS = 3000;

/**
 * Runs `work` on the queue of the installation.
 * @throws {Refusal} when it cannot be reached, or is not where the settings say
 */
export async function withQueueConnection<T>(
  { config, databaseUrl, database }: Installation,
  work: (connection: QueueConnection) => Promise<T>,
): Promise<T> {
  if (queueKind(config) === 'postgres') await expectQueueTables(database.pool);
  // Whatever the settings of this command say: what it looks at is where the processes have it.
  const settings = await settingsOf(database.pool, config).catch(() => config);
  const connection = connectProducer({ ...config, ...settings, QUEUE_TIMEOUT_MS }, databaseUrl);
  try {
    for (const deadline = Date.now() + CONNECT_TIMEOUT_MS; !connection.ready(); await sleep(20)) {
      if (Date.now() > deadline) throw new Refusal('the queue of REDIS_URL cannot be reached');
    }
    return await work(connection);
  } finally {
    await connection.stop();
  }
}

/** The lanes of the installation; those of the settings while none of its processes was ever started. */
async function settingsOf(
  pool: Pool,
  { LANES, SHARDS }: Pick<Config, 'LANES' | 'SHARDS'>,
): Promise<Required<LayoutSettings>> {
  const spread = await readSpread(pool);
  return spread ? { LANES: spread.lanes / spread.shards, SHARDS: spread.shards } : { LANES, SHARDS };
}

/** An installation whose queue is in Redis has no tables for one: without REDIS_URL its workers would hear nothing. */
async function expectQueueTables(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ found: boolean }>('select to_regnamespace($1) is not null as found', [
    QUEUE_SCHEMA,
  ]);
  if (!rows[0]?.found)
    throw new Refusal('there is no queue in this database; set REDIS_URL as its workers have it');
}

export interface Replayed {
  /** Letters handed to the workers. */
  enqueued: number;
  /** Letters that had taken effect before. */
  alreadyReplayed: number;
  /** Letters that were given up, and stay so. */
  discarded: number;
  /** Ids that no dead letter has. */
  unknown: string[];
}

/**
 * Hands dead letters to the workers, one chunk after the other, and tells `advance` of each chunk.
 * @throws {Refusal} when the queue does not take them; what it has taken before stays there.
 */
export async function replayInChunks(
  installation: Installation,
  chunks: AsyncIterable<string[]>,
  advance: (letters: number) => void,
): Promise<Replayed> {
  const replayed: Replayed = { enqueued: 0, alreadyReplayed: 0, discarded: 0, unknown: [] };
  await withQueue(installation, async (context) => {
    for await (const ids of chunks) {
      const result = await replayDeadLetters(context, ids).catch((error: unknown) => {
        if (!(error instanceof QueueUnavailable)) throw error;
        const reason = describeFailure(error.cause ?? error);
        throw new Refusal(
          `the queue did not take the letters (${reason}); ${replayed.enqueued} are with the workers, run it again for the rest`,
        );
      });
      replayed.enqueued += result.enqueued.length;
      replayed.alreadyReplayed += result.alreadyReplayed.length;
      replayed.discarded += result.discarded.length;
      replayed.unknown.push(...result.unknown);
      advance(ids.length);
    }
  });
  return replayed;
}

/**
 * Puts a mended object into a dead letter, and replays it.
 * @throws {Refusal} when it cannot be mended so, or when the queue does not take it
 */
export async function mendInQueue(
  installation: Installation,
  id: string,
  mended: { text: string; by: string },
): Promise<void> {
  await withQueue(installation, async (context) => {
    await mendAndReplay(context, id, mended).catch((error: unknown) => {
      if (error instanceof NotMended) throw new Refusal(error.message);
      if (!(error instanceof QueueUnavailable)) throw error;
      const reason = describeFailure(error.cause ?? error);
      throw new Refusal(`it is mended, but the queue did not take it (${reason}); replay it`);
    });
  });
}

/** What has something to hand to the workers. */
export interface QueueContext extends ReplayContext {
  connection: QueueConnection;
  producer: PlacedProducer;
  layout: Layout;
}

/** As one process of the installation, with its number of lanes: while this runs nobody changes that. */
export async function withQueue(
  installation: Installation,
  work: (context: QueueContext) => Promise<void>,
): Promise<void> {
  const { config, database } = installation;
  await withQueueConnection(installation, async (connection) => {
    const log = pino({ level: 'silent' });
    const producer = openProducer(connection, { pool: database.pool, timeout: QUEUE_TIMEOUT_MS, log });
    const settings = await settingsOf(database.pool, config);
    const layout = layoutOf(settings);
    const membership = await joinInstallation({
      ...{ name: 'penstock', config: settings, pool: database.pool, connection, log },
      additions: producer.additions,
    });
    try {
      const guarded = { ...producer, ...membership.guard(producer) };
      const context = { database, producer: guarded, lanes: layout.lanes, layout, connection };
      await work({ ...context, actor: commandLine() });
    } finally {
      // Of a queue that is away there is nothing to take leave of.
      await membership.stop().catch(() => {});
      await producer.stop().catch(() => {});
    }
  });
}
