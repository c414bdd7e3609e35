import { pino } from 'pino';
import type { Config } from '../platform/config.ts';
import { describeFailure } from '../platform/format.ts';
import { until } from '../platform/poll.ts';
import { connectProducer, type QueueConnection } from '../queue/connection.ts';
import { fixAndReplay, NotFixed, type ReplayContext, replayDeadLetters } from '../queue/dead-letters.ts';
import { createGroupCommit } from '../queue/enqueue.ts';
import { joinInstallation } from '../queue/installation.ts';
import { everyLane, type Layout, type LayoutSettings, layoutOf, QueueUnavailable } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import { hasQueueTables } from '../queue/postgres-queue.ts';
import { openProducer, type ShardedProducer } from '../queue/producer.ts';
import type { QueuedRequest } from '../resources/resource.ts';
import { recordAudit } from '../store/audit.ts';
import type { Pool } from '../store/database.ts';
import {
  lockLanes,
  type Member,
  presentMembers,
  readSpread,
  SILENCE_MS,
  type Spread,
  setLanes,
} from '../store/installation.ts';
import { leaveShards } from '../store/queue-shards.ts';
import { inTransaction } from '../store/transactions.ts';
import { Refusal } from './command.ts';
import { commandLine, type Installation } from './installation.ts';

/** Queue timeout of commands, in milliseconds. QUEUE_TIMEOUT_MS is for API requests; an operator can wait longer. */
export const ADMIN_TIMEOUT_MS = 10_000;

const CONNECT_TIMEOUT_MS = 3000;

/**
 * Connects to the queue of the installation, runs `work` with the connection, and closes it.
 * @throws {Refusal} if the queue cannot be reached, or if QUEUE is `postgres` and the database has no queue tables
 */
export async function withQueueConnection<T>(
  { config, databaseUrl, database }: Installation,
  work: (connection: QueueConnection) => Promise<T>,
): Promise<T> {
  if (config.QUEUE === 'postgres') await expectQueueTables(database.pool);
  // LANES and SHARDS of this command may be outdated, so the layout that the processes use is read from Postgres.
  const settings = await settingsOf(database.pool, config).catch(() => config);
  const connection = connectProducer(
    { ...config, ...settings, QUEUE_TIMEOUT_MS: ADMIN_TIMEOUT_MS },
    databaseUrl,
  );
  try {
    const deadline = Date.now() + CONNECT_TIMEOUT_MS;
    if (!(await until(() => connection.ready(), { every: 20, deadline })))
      throw new Refusal(
        'the queue at REDIS_URL cannot be reached. Check that Redis runs, and that REDIS_URL is the address that the workers have.',
      );
    return await work(connection);
  } finally {
    await connection.stop();
  }
}

/** Reads the lanes and shards of the installation. Before its first process has run, returns LANES and SHARDS. */
async function settingsOf(
  pool: Pool,
  { LANES, SHARDS }: Pick<Config, 'LANES' | 'SHARDS'>,
): Promise<Required<LayoutSettings>> {
  const spread = await readSpread(pool);
  return spread ? { LANES: spread.lanes / spread.shards, SHARDS: spread.shards } : { LANES, SHARDS };
}

/** Fails if the database has no queue tables: the queue is then in Redis, and workers would not read jobs from here. */
async function expectQueueTables(pool: Pool): Promise<void> {
  if (!(await hasQueueTables(pool)))
    throw new Refusal(
      'this database has no queue tables. Set REDIS_URL to the address that the workers have.',
    );
}

interface Replayed {
  /** Dead letters that were enqueued. */
  enqueued: number;
  /** Dead letters that had already taken effect. */
  alreadyReplayed: number;
  /** Dead letters that were skipped because they are discarded. */
  discarded: number;
  /** Ids without a dead letter. */
  unknown: string[];
}

/**
 * Enqueues dead letters chunk by chunk, and calls `advance` after each chunk.
 * @throws {Refusal} if the queue rejects a chunk; earlier chunks stay enqueued
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
          `the queue did not accept all dead letters (${reason}); ${replayed.enqueued} were enqueued. Run the command again for the others`,
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
 * Replaces the object of a dead letter with a corrected one, and replays it.
 * @throws {Refusal} if the corrected object is rejected, or if the queue does not accept the job
 */
export async function fixInQueue(
  installation: Installation,
  id: string,
  mended: { text: string; by: string },
): Promise<void> {
  await withQueue(installation, async (context) => {
    await fixAndReplay(context, id, mended).catch((error: unknown) => {
      if (error instanceof NotFixed) throw new Refusal(error.message);
      if (!(error instanceof QueueUnavailable)) throw error;
      const reason = describeFailure(error.cause ?? error);
      throw new Refusal(
        `the object was replaced, but the queue did not accept it (${reason}); replay the dead letter`,
      );
    });
  });
}

/** The queue as commands use it to enqueue jobs. */
export interface QueueContext extends ReplayContext {
  connection: QueueConnection;
  producer: ShardedProducer;
  layout: Layout;
}

/**
 * Registers the command as a process of the installation and runs `work` with a producer. The number of lanes cannot
 * change while the command is registered.
 */
export async function withQueue<T>(
  installation: Installation,
  work: (context: QueueContext) => Promise<T>,
): Promise<T> {
  const { config, database } = installation;
  return withQueueConnection(installation, async (connection) => {
    const log = pino({ level: 'silent' });
    const producer = openProducer(connection, { pool: database.pool, timeout: ADMIN_TIMEOUT_MS, log });
    const settings = await settingsOf(database.pool, config);
    const layout = layoutOf(settings);
    const membership = await joinInstallation({
      ...{ name: 'penstock', config: settings, pool: database.pool, connection, log },
      additions: producer.additions,
    });
    try {
      const guarded = { ...producer, ...membership.guard(producer) };
      const context = { database, producer: guarded, lanes: layout.lanes, layout, connection };
      return await work({ ...context, actor: commandLine() });
    } finally {
      // If the queue is unavailable, deregistering fails; the work is over by then, so the error is ignored.
      await membership.stop().catch(() => {});
      await producer.stop().catch(() => {});
    }
  });
}

/**
 * Adds objects to the queue as a request to the API does, and returns when they are stored.
 * @throws {Refusal} if the queue does not accept the objects
 */
export async function enqueueInQueue(
  installation: Installation,
  { workspaceId, requestId, objects }: QueuedRequest,
): Promise<string[]> {
  const { config } = installation;
  return withQueue(installation, async ({ producer, layout }) => {
    const queue = createGroupCommit(producer, {
      lanes: layout.lanes,
      maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
      maxPendingObjects: config.MAX_PENDING_OBJECTS,
      maxPendingBytes: config.MAX_PENDING_BYTES,
      backlog: () => 0,
    });
    const request = {
      request_id: requestId,
      workspace_id: workspaceId,
      accepted_at: new Date().toISOString(),
    };
    const entries = await queue
      .enqueue(request, objects, { bytes: JSON.stringify(objects).length })
      .catch((error: unknown) => {
        if (!(error instanceof QueueUnavailable)) throw error;
        throw new Refusal(
          `the queue did not accept the request (${describeFailure(error.cause ?? error)}); nothing was stored, run the command again`,
        );
      });
    return envelopesOf(request, entries);
  });
}

/** Milliseconds between two attempts to change the number of lanes. */
const POLL_MS = 500;

/** Maximum number of processes that a message lists. */
const NAMED = 5;

interface LanesChange {
  /** Lanes per shard. */
  lanes: number;
  /** Number of shards; absent: unchanged. */
  shards?: number | undefined;
  /** Seconds to wait until every lane is empty and every process has ended. */
  wait: number;
  /** Called with the reason for waiting, each time the reason changes. */
  onWait(hindrance: string): void;
}

/** The running processes and queued envelopes that prevent a change of the number of lanes. */
interface Hindrance {
  members: Member[];
  held: number;
}

/** Lanes per shard, and number of shards. */
interface Lanes {
  lanes: number;
  shards: number;
}

/**
 * Changes the number of lanes or shards as soon as no process runs and all lanes are empty. Otherwise a user's waiting
 * jobs in the old lane and later jobs in the new lane could be applied out of order. If only the number of shards
 * grows, existing lanes keep their numbers and need not be empty.
 *
 * @returns the numbers before and after the change
 * @throws {Refusal} if no process has ever run, or if processes or jobs prevented the change for the whole `wait` time
 */
export async function changeLanes(
  installation: Installation,
  change: LanesChange,
): Promise<{ before: Lanes; after: Lanes }> {
  const { pool } = installation.database;
  const spread = await readSpread(pool);
  if (spread === undefined)
    throw new Refusal(
      'no process has run yet: the first process to start fixes the number of lanes by LANES',
    );
  const before = lanesOf(spread);
  const after = { lanes: change.lanes, shards: change.shards ?? before.shards };
  if (before.lanes === after.lanes && before.shards === after.shards) return { before, after };
  return withQueueConnection(installation, async (connection) => {
    let lastReason = '';
    const hindrance = await until(() => changeNow(installation, connection, after), {
      every: POLL_MS,
      deadline: Date.now() + change.wait * 1000,
      isSo: (current) => !current || current.members.length === 0,
      inVain(current) {
        const words = describe(current!, before.lanes);
        if (words !== lastReason) change.onWait(words);
        lastReason = words;
      },
    });
    if (!hindrance) return { before, after };
    const what = before.lanes === after.lanes ? 'shards' : 'lanes';
    throw new Refusal(`the number of ${what} is still ${before[what]}: ${describe(hindrance, before.lanes)}`);
  });
}

const lanesOf = ({ lanes, shards }: Spread): Lanes => ({ lanes: lanes / shards, shards });

/** @returns what prevents the change; undefined if the change is committed */
async function changeNow(
  { database: { pool } }: Installation,
  connection: QueueConnection,
  after: Lanes,
): Promise<Hindrance | undefined> {
  return inTransaction(pool, async (tx) => {
    const { lanes, shards } = after;
    const spread = await lockLanes(tx);
    const before = spread ? lanesOf(spread) : after;
    // Processes are checked before the lanes: a process may add a job and then end.
    const members = await presentMembers(tx);
    const isGrowth = before.lanes === lanes && before.shards <= shards;
    const lanesBefore = before.shards === 1 ? Math.max(before.lanes, lanes) : before.lanes * before.shards;
    const held = isGrowth ? 0 : await heldIn(connection, lanesBefore);
    if (members.length > 0 || held > 0) return { members, held };
    await setLanes(tx, lanes * shards, shards);
    if (shards < before.shards) await leaveShards(tx, shards);
    const subject = { kind: 'queue', id: 'lanes' };
    const isSharded = before.shards > 1 || shards > 1;
    const detail = {
      before: before.lanes,
      lanes,
      ...(isSharded && { shards_before: before.shards, shards }),
    };
    await recordAudit(tx, commandLine(), [{ action: 'queue.set_lanes', subject, detail }]);
    return undefined;
  });
}

/** Counts the envelopes that are waiting or being processed. */
async function heldIn({ laneStore }: QueueConnection, lanes: number): Promise<number> {
  const depths = await Promise.all(everyLane(lanes).map(laneStore.depth));
  return depths.reduce((sum, { waiting, active }) => sum + waiting + active, 0);
}

function describe({ members, held }: Hindrance, lanes: number): string {
  const named = members.slice(0, NAMED).map(({ name, host, pid }) => `${name} (${pid} on ${host})`);
  const more = members.length > NAMED ? `, and ${members.length - NAMED} more` : '';
  const running =
    named.length > 0
      ? `${named.join(', ')}${more} runs, or was killed less than ${SILENCE_MS / 1000} s ago`
      : '';
  const holding =
    held > 0
      ? `the lanes still hold ${held} jobs; run a worker with LANES=${lanes} until they are empty`
      : '';
  return [running, holding].filter(Boolean).join('; ');
}
