import { pino } from 'pino';
import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Config } from '../platform/config.ts';
import { describeFailure } from '../platform/format.ts';
import { until } from '../platform/poll.ts';
import { connectProducer, type QueueConnection } from '../queue/connection.ts';
import { mendAndReplay, NotMended, type ReplayContext, replayDeadLetters } from '../queue/dead-letters.ts';
import { createGroupCommit } from '../queue/enqueue.ts';
import { joinInstallation } from '../queue/installation.ts';
import { everyLane, type Layout, type LayoutSettings, layoutOf, QueueUnavailable } from '../queue/lanes.ts';
import { hasQueueTables } from '../queue/postgres-queue.ts';
import { openProducer, type PlacedProducer } from '../queue/producer.ts';
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

/** A person at a terminal waits longer than a request at the edge may, for which the setting is made. */
export const ADMIN_TIMEOUT_MS = 10_000;

const CONNECT_TIMEOUT_MS = 3000;

/**
 * Runs `work` on the queue of the installation.
 * @throws {Refusal} when it cannot be reached, or is not where the settings say
 */
export async function withQueueConnection<T>(
  { config, databaseUrl, database }: Installation,
  work: (connection: QueueConnection) => Promise<T>,
): Promise<T> {
  if (config.QUEUE === 'postgres') await expectQueueTables(database.pool);
  // Whatever the settings of this command say: what it looks at is where the processes have it.
  const settings = await settingsOf(database.pool, config).catch(() => config);
  const connection = connectProducer(
    { ...config, ...settings, QUEUE_TIMEOUT_MS: ADMIN_TIMEOUT_MS },
    databaseUrl,
  );
  try {
    const deadline = Date.now() + CONNECT_TIMEOUT_MS;
    if (!(await until(() => connection.ready(), { every: 20, deadline })))
      throw new Refusal('the queue at REDIS_URL cannot be reached');
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
  if (!(await hasQueueTables(pool)))
    throw new Refusal('this database has no queue; set REDIS_URL to the value that the workers have');
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
      throw new Refusal(
        `the object was replaced, but the queue did not accept it (${reason}); replay the dead letter`,
      );
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
      await work({ ...context, actor: commandLine() });
    } finally {
      // Of a queue that is away there is nothing to take leave of.
      await membership.stop().catch(() => {});
      await producer.stop().catch(() => {});
    }
  });
}

/** Objects of one request that a command adds to the queue. */
interface CommandRequest {
  workspaceId: string;
  requestId: string;
  objects: AcceptedObject[];
}

/**
 * Adds objects to the queue as a request to the API does, and returns when they are stored.
 * @throws {Refusal} when the queue does not accept them
 */
export async function enqueueInQueue(
  installation: Installation,
  { workspaceId, requestId, objects }: CommandRequest,
): Promise<void> {
  const { config } = installation;
  await withQueue(installation, async ({ producer, layout }) => {
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
    await queue
      .enqueue(request, objects, { bytes: JSON.stringify(objects).length })
      .catch((error: unknown) => {
        if (!(error instanceof QueueUnavailable)) throw error;
        throw new Refusal(
          `the queue did not accept the request (${describeFailure(error.cause ?? error)}); nothing was stored, run the command again`,
        );
      });
  });
}

/** Between two looks at what is in the way. */
const POLL_MS = 500;

/** Processes that are named in a message. */
const NAMED = 5;

export interface LanesChange {
  /** Of each shard. */
  lanes: number;
  /** Absent: as many as there are. */
  shards?: number | undefined;
  /** Seconds to wait until every lane is empty and every process has ended. */
  wait: number;
  /** Told what is in the way, whenever that changes. */
  say(hindrance: string): void;
}

/** What is in the way of another number of lanes. */
interface Hindrance {
  members: Member[];
  held: number;
}

/** Lanes of each shard, and shards. */
export interface Lanes {
  lanes: number;
  shards: number;
}

/**
 * Gives the installation another number of lanes or shards, as soon as no process runs and no lane holds anything. What
 * waits in one lane and what is added to another would lose their order. With more shards alone every lane is what it
 * was, and may hold what it likes.
 *
 * @returns what it had, and has
 * @throws {Refusal} when something was in the way all the time, or nobody is there to empty the lanes
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
    let said = '';
    const hindrance = await until(() => changeNow(installation, connection, after), {
      every: POLL_MS,
      deadline: Date.now() + change.wait * 1000,
      isSo: (found) => !found || found.members.length === 0,
      inVain(found) {
        const words = describe(found!, before.lanes);
        if (words !== said) change.say(words);
        said = words;
      },
    });
    if (!hindrance) return { before, after };
    const what = before.lanes === after.lanes ? 'shards' : 'lanes';
    throw new Refusal(`the number of ${what} is still ${before[what]}: ${describe(hindrance, before.lanes)}`);
  });
}

const lanesOf = ({ lanes, shards }: Spread): Lanes => ({ lanes: lanes / shards, shards });

/** @returns what is in the way; undefined: it is changed */
async function changeNow(
  { database: { pool } }: Installation,
  connection: QueueConnection,
  after: Lanes,
): Promise<Hindrance | undefined> {
  return inTransaction(pool, async (tx) => {
    const { lanes, shards } = after;
    const spread = await lockLanes(tx);
    const before = spread ? lanesOf(spread) : after;
    // In this order: who was there a moment ago may have added something.
    const members = await presentMembers(tx);
    const isGrowth = before.lanes === lanes && before.shards <= shards;
    const most = before.shards === 1 ? Math.max(before.lanes, lanes) : before.lanes * before.shards;
    const held = isGrowth ? 0 : await heldIn(connection, most);
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

/** Envelopes that wait or are in work. */
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
