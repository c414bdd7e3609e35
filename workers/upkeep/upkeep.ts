import type { Config } from '../../src/platform/config.ts';
import { type Service, withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll } from '../../src/platform/poll.ts';
import type { LaneStore } from '../../src/queue/lane-store.ts';
import {
  everyLane,
  everyShard,
  type LayoutSettings,
  laneCount,
  laneName,
  shardOfLane,
} from '../../src/queue/lanes.ts';
import { decodeEnvelope } from '../../src/queue/wire.ts';
import { eraseDeletedFromLogs } from '../../src/retention/erase-log.ts';
import { forgetKeyUsage } from '../../src/store/api-keys.ts';
import { forgetAudit } from '../../src/store/audit-list.ts';
import { blockIfDummies, findCrowdedProfiles } from '../../src/store/blocked-external-ids.ts';
import { analyzeGrown, type Pool } from '../../src/store/database.ts';
import { forgetArrivals } from '../../src/store/fences.ts';
import { forgetKeys } from '../../src/store/idempotency-keys.ts';
import { eraseStaleRows } from '../../src/store/imports.ts';
import { forgetCutEnvelopes, forgetEnvelopes, readApplied } from '../../src/store/ledger.ts';
import { forgetOutcomes } from '../../src/store/outcomes.ts';
import { ensurePartitions } from '../../src/store/partitions.ts';
import { forgetRefusedObjects } from '../../src/store/refused-objects.ts';
import { forgetRefusedOfUsers } from '../../src/store/refused-of-users.ts';
import { forgetSessions } from '../../src/store/sessions.ts';
import { forgetInvalidNumbers, type InvalidNumbersCursor } from '../../src/store/suppression-lists.ts';
import { endStaleRuns } from '../../src/store/sync-chunks.ts';
import { indexUsers } from '../../src/store/user-search.ts';
import { fenceOf, ledgerKey } from '../batch/open.ts';

/**
 * Blocks users with more than 20,000 distinct event names or products: objects for their external ids are
 * refused from then on, and stored data is kept. It may be repeated and run concurrently.
 *
 * It runs outside of the lanes, because finding such users in a batch is too expensive: learning which
 * summaries an upsert has inserted, and counting the summaries of their profiles, took 111 ms instead of 29
 * for 2,000 new ones. The sample that is read here costs an insert one hash, 0.1 µs.
 */
export async function blockDummyUsers(pool: Pool, log: Log): Promise<void> {
  const crowded = await findCrowdedProfiles(pool);
  if (crowded.length === 0) return;
  for (const { workspaceId, blocked, leftOut } of await blockIfDummies(pool, crowded)) {
    const whose = { workspace_id: workspaceId };
    if (blocked > 0)
      log.warn({ ...whose, blocked }, 'users with too many event names or products were blocked');
    if (leftOut > 0)
      log.error(
        { ...whose, left_out: leftOut },
        'a workspace has the maximum of 10,000 blocked users; further users with too many event names or products were not blocked',
      );
  }
}

/**
 * Milliseconds that a start waits to limit a lane: briefly if other shards can be processed meanwhile,
 * otherwise without an end.
 */
const LIMIT_TIMEOUT_MS = 5000;
const FOREVER_MS = 2 ** 31 - 1;

const CHECK_LANES_MS = 5000;
const BLOCK_DUMMIES_MS = 60_000;
const SIZE_CHECK_MS = 1000;
/** A worker that has applied no objects since the last check of table sizes skips this many checks. */
const IDLE_SKIPS = 10;
const ERASE_LOG_MS = 60_000;
const INDEX_USERS_MS = 2000;
const TIDY_STORE_MS = 3_600_000;

interface UpkeepOptions {
  laneStore: LaneStore;
  pool: Pool;
  /** Returns the number of objects that this worker has applied. */
  objects(): number;
  config: LayoutSettings & Pick<Config, 'LEDGER_DAYS' | 'AUDIT_DAYS'>;
  log: Log;
}

/**
 * Starts the maintenance that each worker does. Several workers may do it at the same time. It
 *
 * - restores the limit of one job at a time in each lane, which `obliterate` on the dashboard removes with the queue;
 * - removes finished jobs, and failed jobs that took effect;
 * - blocks dummy users, analyzes tables that grow, and creates the partitions of the next month;
 * - erases deleted users from the log of streams;
 * - fills the index of the console's search;
 * - deletes old rows: ledger, fences, outcomes, idempotency keys, audit, sessions, refused objects, and rows of
 *   interrupted imports and syncs.
 */
export async function startUpkeep({
  laneStore,
  pool,
  objects,
  config,
  log,
}: UpkeepOptions): Promise<Service> {
  const lanes = everyLane(laneCount(config));
  const { layout } = laneStore;
  const { shards } = layout;
  // A lane of an unavailable shard is checked again later. Each producer that adds to a lane also sets its
  // limit.
  const patience = shards === 1 ? FOREVER_MS : LIMIT_TIMEOUT_MS;
  const limited = await Promise.allSettled(lanes.map((lane) => withTimeout(patience, laneStore.limit(lane))));
  for (const one of limited)
    if (one.status === 'rejected')
      log.warn({ err: one.reason }, 'concurrency limit of a lane could not be set; will retry');

  /** Checks the lanes of one shard. An unavailable shard does not prevent the check of other shards. */
  async function checkShard(shard: number): Promise<void> {
    for (const lane of lanes) {
      if (shardOfLane(layout, lane) !== shard) continue;
      if (!(await laneStore.isLimited(lane))) {
        log.error(
          { lane: laneName(lane) },
          'lane had lost its concurrency limit of one job; limit set again',
        );
        await laneStore.limit(lane);
      }
      await checkFailed(lane);
      await laneStore.forgetFinished(lane);
    }
  }

  /** Ids of failed jobs without an effect that were already logged, by lane. */
  const loggedFailures = new Map<number, string[]>();

  async function checkFailed(lane: number): Promise<void> {
    const lost = await removeAppliedFailures(lane, laneStore, pool);
    const news = lost.filter((id) => !loggedFailures.get(lane)?.includes(id));
    loggedFailures.set(lane, lost);
    if (news.length > 0)
      log.error({ lane: laneName(lane), jobs: news }, 'jobs of a lane failed and did not take effect');
  }

  /** Position in the list of invalid numbers, which is processed one page at a time. */
  let invalidNumbers: InvalidNumbersCursor | undefined;

  async function tidyStore(): Promise<void> {
    await ensurePartitions(pool);
    await forgetEnvelopes(pool, config.LEDGER_DAYS);
    await forgetCutEnvelopes(pool, config.LEDGER_DAYS);
    await forgetOutcomes(pool);
    await forgetArrivals(pool);
    await forgetKeys(pool);
    await forgetAudit(pool, config.AUDIT_DAYS);
    await forgetSessions(pool);
    await forgetKeyUsage(pool);
    await forgetRefusedObjects(pool);
    await forgetRefusedOfUsers(pool);
    await eraseStaleRows(pool);
    await endStaleRuns(pool);
    invalidNumbers = await forgetInvalidNumbers(pool, invalidNumbers);
  }

  let objectsBefore = -1;

  /**
   * Tables grow with the objects that workers apply. Other processes may have applied some as well, so an
   * idle worker still checks occasionally.
   */
  let skipped = 0;
  async function checkSizes(): Promise<void> {
    const now = objects();
    if (now === objectsBefore && ++skipped < IDLE_SKIPS) return;
    objectsBefore = now;
    skipped = 0;
    await analyzeGrown(pool);
  }

  await ensurePartitions(pool);
  const warn = (error: unknown) => log.warn({ err: error }, 'upkeep failed; will retry');
  const tidying = poll(TIDY_STORE_MS, tidyStore, warn);
  // The start does not wait for the cleanup of old data.
  void tidying.now();
  const leaving = new AbortController();
  const pollers = [
    ...everyShard(shards).map((shard) => poll(CHECK_LANES_MS, () => checkShard(shard), warn)),
    poll(BLOCK_DUMMIES_MS, () => blockDummyUsers(pool, log), warn),
    poll(ERASE_LOG_MS, () => eraseDeletedFromLogs(pool, { leaving: leaving.signal }), warn),
    poll(INDEX_USERS_MS, async () => void (await indexUsers(pool)), warn),
    poll(SIZE_CHECK_MS, checkSizes, warn),
    tidying,
  ];
  return {
    name: 'upkeep',
    async stop() {
      leaving.abort();
      for (const poller of pollers) void poller.stop();
    },
  };
}

/** Maximum failed jobs of a lane that are checked at a time. */
const MAX_FAILED = 100;

/** Maximum fence marks among them that are read, one after the other. */
const MAX_MARKS = 20;

/**
 * Removes the failed jobs of a lane that have taken effect. BullMQ marks a job as failed if the connection
 * breaks while the job is being completed, and its worker may have ended by then. The ledger decides whether
 * it took effect.
 *
 * @returns the ids of failed jobs that have not taken effect, which are kept
 */
export async function removeAppliedFailures(
  lane: number,
  laneStore: Pick<LaneStore, 'failed' | 'read' | 'remove'>,
  pool: Pool,
): Promise<string[]> {
  const failed = await laneStore.failed(lane, MAX_FAILED);
  if (failed.length === 0) return [];
  const keys = new Map(failed.map((id) => [id, ledgerKey(id)]));
  const applied = await readApplied(pool, [...keys.values()]);
  const unknown = failed.filter((id) => !applied.has(keys.get(id)!));

  // The mark of a fence has its own id, and takes effect with the fence.
  for (const id of unknown.slice(0, MAX_MARKS)) {
    const [one] = await laneStore.read(lane, [id]);
    if (!one?.data?.fence) continue;
    const fence = fenceOf({ id: ledgerKey(id), lane, envelope: decodeEnvelope(one.data) });
    if (fence) keys.set(id, fence.id);
  }
  if (unknown.length > 0) for (const id of await readApplied(pool, [...keys.values()])) applied.add(id);

  const isApplied = (id: string) => applied.has(keys.get(id)!);
  for (const id of failed.filter(isApplied)) await laneStore.remove(lane, id);
  return failed.filter((id) => !isApplied(id));
}
