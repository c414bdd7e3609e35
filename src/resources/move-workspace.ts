import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { rest, until } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { watchApplied } from '../queue/effects.ts';
import { envelopeId, type LaneEntry, type LaneProducer } from '../queue/lanes.ts';
import { HOLD_MS, KNOWN_MS, openMoves } from '../queue/moves.ts';
import { serverOfShard } from '../queue/open-redis.ts';
import { recordAudit } from '../store/audit.ts';
import type { Pool } from '../store/database.ts';
import { type Home, recordHome } from '../store/queue-shards.ts';
import { inTransaction } from '../store/transactions.ts';
import { Refusal } from './refusal.ts';
import type { Context, Queue } from './resource.ts';

/** A hold starts only if the waiting jobs of the workspace are applied within these milliseconds. */
const SHORT_MS = 250;

/** Last milliseconds of a hold, reserved for the call to Redis that completes the move. */
const RESERVE_MS = 100;

/** Milliseconds between two attempts. Requests of the workspace are served in between. */
const REST_MS = 2000;

/** Timeout in milliseconds of a call to Redis that begins or ends a move. */
const CALL_MS = 10_000;

/** Maximum milliseconds to wait until replicas have stored the move. */
const REPLICAS_MS = 5000;

interface MoveContext extends Pick<Context, 'database' | 'actor'> {
  queue: Queue;
}

interface MoveOptions {
  /** Target shard, counted from 0. */
  to: number;
  /** Maximum seconds to wait until few jobs of the workspace are waiting. */
  wait: number;
  /** Called with the reason for waiting, after each failed attempt. */
  onWait(hindrance: string): void;
}

/**
 * Moves a workspace to another shard while its clients send requests. Each step depends on the step before:
 *
 * 1. Adds a marker of the workspace to each lane of its shard. If all markers are applied within SHORT_MS, few of its
 *    jobs are waiting, and the move starts.
 * 2. Records in the shard that the workspace is moving. A producer reads this record in the transaction in which it
 *    adds to the shard, and from then on holds the requests of the workspace, for at most HOLD_MS.
 * 3. Waits KNOWN_MS, during which a producer may still add jobs without having read the record. Afterwards no producer
 *    adds jobs of the workspace.
 * 4. Adds markers again. When they are applied, all jobs of the workspace that were added before are applied too.
 * 5. Records in the shard that the workspace has moved, unless the hold has expired. From then on its requests go to
 *    the target shard.
 * 6. Records the new shard in Postgres, for processes that start later.
 *
 * If the command is killed before step 5, the workspace has not moved, and its requests are held for at most HOLD_MS.
 * If it is killed after step 5, the workspace has moved: the next producer that uses the old shard finds the record
 * there and stores the new shard in Postgres.
 *
 * @returns the previous shard, and the milliseconds for which requests were held at most
 * @throws {Refusal} if the workspace stays in its shard
 */
export async function moveWorkspace(
  { database: { pool }, actor, queue: { connection, producer, layout } }: MoveContext,
  workspaceId: string,
  { to, wait, onWait }: MoveOptions,
): Promise<{ from: number; held: number }> {
  const unmoved = { from: to, held: 0 };
  if (layout.shards === 1) return unmoved;
  const home = await producer.homeOf!(workspaceId);
  if (home.shard === to) return unmoved;
  const move = { ...{ connection, producer, pool, workspaceId, home, to }, lanes: layout.lanes };
  const held = await until(() => tryToMove(move), {
    every: REST_MS,
    deadline: Date.now() + wait * 1000,
    isSo: (ms) => ms !== undefined,
    inVain: () =>
      onWait('too many jobs of the workspace are waiting; its requests continue, and the move is retried'),
  });
  if (held === undefined)
    throw new Refusal(
      `the workspace stays in shard ${home.shard}: too many of its jobs were waiting during the whole time. Try again later, or raise the time limit`,
    );
  const detail = { from: home.shard, to };
  await inTransaction(pool, async (tx) => {
    await recordHome(tx, workspaceId, { shard: to, moves: home.moves + 1 });
    const subject = { kind: 'workspace', id: workspaceId };
    await recordAudit(tx, actor, [{ action: 'workspaces.move', subject, workspaceId, detail }]);
  });
  return { from: home.shard, held };
}

/** @throws {Refusal} if the installation does not have the shard */
export function requireShard({ shards }: { shards: number }, shard: number): void {
  if (shard >= shards)
    throw new Refusal(`shard ${shard} does not exist: SHARDS is ${shards}, and shards count from 0`, 'shard');
}

interface Moving {
  connection: QueueConnection;
  producer: LaneProducer;
  pool: Pool;
  workspaceId: string;
  home: Home;
  to: number;
  /** Lanes per shard. */
  lanes: number;
}

/** @returns the milliseconds for which the workspace was held; undefined if it has not moved and is no longer held */
async function tryToMove(moving: Moving): Promise<number | undefined> {
  const { connection, workspaceId, home, to } = moving;
  if (!(await isApplied(moving, SHORT_MS))) return undefined;
  const redis = connection.redis!;
  const moves = openMoves(redis, CALL_MS);
  const number = home.moves + 1;
  const begun = performance.now();
  const left = () => HOLD_MS - RESERVE_MS - (performance.now() - begun);
  if (!(await moves.begin(home.shard, workspaceId, { to, number })))
    throw new Refusal('another process is moving this workspace; wait until it has finished');
  try {
    await rest(KNOWN_MS + 10);
    // This process checks the time too: after a failover, the clock of the new primary may differ.
    const isDone = (await isApplied(moving, left())) && left() > 0;
    if (isDone && (await moves.end(home.shard, workspaceId, number))) {
      const held = Math.round(performance.now() - begun);
      await holdByReplicas(connection, home.shard);
      return held;
    }
  } finally {
    // Has no effect if the move is complete.
    await moves.giveUp(home.shard, workspaceId, number).catch(() => {});
  }
  return undefined;
}

/** Adds a marker to each lane of the shard and checks that all are applied within `patience` milliseconds. */
async function isApplied(
  { producer, pool, workspaceId, home, lanes }: Moving,
  patience: number,
): Promise<boolean> {
  const startedAt = performance.now();
  const markers = Array.from({ length: lanes }, (_, lane): LaneEntry => {
    const request = { request_id: newId(), workspace_id: workspaceId, accepted_at: nowDate().toISOString() };
    return {
      ...{ lane, id: envelopeId([workspaceId]) },
      envelope: { requests: [{ ...request, count: 0 }], objects: [] },
    };
  });
  // Markers are added even while the workspace is held: the hold applies only to requests.
  await producer.placing!.addTo(home.shard, markers);
  const left = patience - (performance.now() - startedAt);
  const ids = markers.map(({ id }) => id);
  return left > 0 && (await watchApplied(pool)(ids, { patience: left })).missing.size === 0;
}

/** Waits until the configured number of replicas has stored the move, so that it survives the loss of the primary. */
async function holdByReplicas({ redis, replication }: QueueConnection, shard: number): Promise<void> {
  if (!redis || !replication) return;
  await serverOfShard(redis, shard)
    .call('WAIT', replication.replicas, REPLICAS_MS)
    .catch(() => {});
}
