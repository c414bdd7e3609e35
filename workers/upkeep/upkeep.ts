import type { Config } from '../../src/platform/config.ts';
import { type Service, within } from '../../src/platform/lifecycle.ts';
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
import { forgetSessions } from '../../src/store/sessions.ts';
import { forgetInvalidNumbers, type InvalidNumbersCursor } from '../../src/store/suppression-lists.ts';
import { endStaleRuns } from '../../src/store/sync-chunks.ts';
import { fenceOf, ledgerKey } from '../batch/open.ts';

/**
 * Blocks the users who have more than 20,000 distinct event names or products: objects for their external ids
 * are refused from then on, what is stored stays. Safe to repeat and to race.
 *
 * It looks at what is stored, beside the lanes, since a batch cannot tell at no cost. To learn which summaries an
 * upsert has inserted, and to count those of their profiles, costs too much: 2000 new ones took 111 ms instead of 29.
 * The sample that is looked at here costs an insert a hash, 0.1 µs.
 */
export async function blockDummyUsers(pool: Pool, log: Log): Promise<void> {
  const crowded = await findCrowdedProfiles(pool);
  if (crowded.length === 0) return;
  for (const { workspaceId, blocked, leftOut } of await blockIfDummies(pool, crowded)) {
    const whose = { workspace_id: workspaceId };
    if (blocked > 0) log.warn({ ...whose, blocked }, 'dummy users were blocked');
    if (leftOut > 0)
      log.error(
        { ...whose, left_out: leftOut },
        'blocked-user limit reached; some dummy users are not blocked',
      );
  }
}

/** Milliseconds that a start waits for a lane, where there are others that may be worked meanwhile, and where not. */
const LIMIT_PATIENCE_MS = 5000;
const FOREVER_MS = 2 ** 31 - 1;

const CHECK_LANES_MS = 5000;
const BLOCK_DUMMIES_MS = 60_000;
const LOOK_AT_SIZES_MS = 1000;
/** A worker that has applied nothing since its last look at sizes omits so many. */
const IDLE_LOOKS = 10;
const ERASE_LOG_MS = 60_000;
const TIDY_STORE_MS = 3_600_000;

export interface UpkeepOptions {
  laneStore: LaneStore;
  pool: Pool;
  /** Objects that this worker has applied. */
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
  // One whose shard is away is looked at again with the others; whoever adds to a lane sets its limit, too.
  const patience = shards === 1 ? FOREVER_MS : LIMIT_PATIENCE_MS;
  const limited = await Promise.allSettled(lanes.map((lane) => within(patience, laneStore.limit(lane))));
  for (const one of limited)
    if (one.status === 'rejected')
      log.warn({ err: one.reason }, 'concurrency limit of a lane could not be set; will retry');

  /** A shard at a time: one that is away keeps only its own lanes from being looked at. */
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

  /** Failed jobs that have not taken effect, of which this process has told, by lane. */
  const told = new Map<number, string[]>();

  async function checkFailed(lane: number): Promise<void> {
    const lost = await removeAppliedFailures(lane, laneStore, pool);
    const news = lost.filter((id) => !told.get(lane)?.includes(id));
    told.set(lane, lost);
    if (news.length > 0)
      log.error({ lane: laneName(lane), jobs: news }, 'jobs of a lane failed and did not take effect');
  }

  /** The list of invalid numbers is gone through a page at a time. */
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
    await eraseStaleRows(pool);
    await endStaleRuns(pool);
    invalidNumbers = await forgetInvalidNumbers(pool, invalidNumbers);
  }

  let objectsBefore = -1;

  /** Tables grow with what workers apply; other processes may have applied something as well. */
  let skipped = 0;
  async function lookAtSizes(): Promise<void> {
    const now = objects();
    if (now === objectsBefore && ++skipped < IDLE_LOOKS) return;
    objectsBefore = now;
    skipped = 0;
    await analyzeGrown(pool);
  }

  await ensurePartitions(pool);
  const warn = (error: unknown) => log.warn({ err: error }, 'upkeep failed; will retry');
  const tidying = poll(TIDY_STORE_MS, tidyStore, warn);
  // No lane waits until everything that is old has gone.
  void tidying.now();
  const leaving = new AbortController();
  const pollers = [
    ...everyShard(shards).map((shard) => poll(CHECK_LANES_MS, () => checkShard(shard), warn)),
    poll(BLOCK_DUMMIES_MS, () => blockDummyUsers(pool, log), warn),
    poll(ERASE_LOG_MS, () => eraseDeletedFromLogs(pool, { leaving: leaving.signal }), warn),
    poll(LOOK_AT_SIZES_MS, lookAtSizes, warn),
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

/** Failed jobs of one lane that are looked at in one go, by their ids. */
const MOST_FAILED = 100;

/** Of these, marks of fences whose data is read, one after the other. */
const MOST_MARKS = 20;

/**
 * Removes the failed jobs of a lane that have taken effect. BullMQ calls a job failed when the connection breaks while
 * it is told that the job is completed. Whoever worked it may be gone by then. The ledger decides.
 *
 * @returns ids of the failed jobs that have not taken effect, which are left alone
 */
export async function removeAppliedFailures(
  lane: number,
  laneStore: Pick<LaneStore, 'failed' | 'read' | 'remove'>,
  pool: Pool,
): Promise<string[]> {
  const failed = await laneStore.failed(lane, MOST_FAILED);
  if (failed.length === 0) return [];
  const keys = new Map(failed.map((id) => [id, ledgerKey(id)]));
  const applied = await readApplied(pool, [...keys.values()]);
  const unknown = failed.filter((id) => !applied.has(keys.get(id)!));

  // The mark of a fence has an id of its own, and takes effect with the fence.
  for (const id of unknown.slice(0, MOST_MARKS)) {
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
