import { newId } from '../platform/ids.ts';
import { rest, until } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { watchApplied } from '../queue/effects.ts';
import { envelopeId, type LaneEntry } from '../queue/lanes.ts';
import { HOLD_MS, KNOWN_MS, openMoves } from '../queue/moves.ts';
import { serverOfShard } from '../queue/open-redis.ts';
import type { PlacedProducer } from '../queue/producer.ts';
import { recordAudit } from '../store/audit.ts';
import type { Pool } from '../store/database.ts';
import { type Home, recordHome } from '../store/queue-shards.ts';
import { inTransaction } from '../store/transactions.ts';
import { Refusal } from './command.ts';
import { commandLine, type Installation } from './installation.ts';
import { ADMIN_TIMEOUT_MS, withQueue } from './queue.ts';

/** Milliseconds within which all that waits of a workspace has to be applied, so that holding it promises an end. */
const SHORT_MS = 250;

/** Milliseconds of the hold in which nothing is begun any more: what ends it has to reach Redis. */
const RESERVE_MS = 100;

/** Milliseconds between two tries to hold a workspace: its requests go on meanwhile. */
const REST_MS = 2000;

/** Milliseconds for replicas to hold where a workspace has gone. */
const REPLICAS_MS = 5000;

export interface Asked {
  to: number;
  /** Seconds to wait for a moment at which little of the workspace waits. */
  wait: number;
  /** Told what is in the way. */
  say(hindrance: string): void;
}

/**
 * Moves a workspace to another shard while it sends. In this order, each step of which stands on the one before:
 *
 * 1. Markers of the workspace, one in each lane of its shard, are applied within a moment: little of it waits there.
 * 2. The shard holds that it moves. Whoever adds to the shard reads that in the same transaction, and holds the
 *    workspace's requests from then on, for HOLD_MS at most.
 * 3. For KNOWN_MS somebody may add who has not heard of it. After that nobody adds anything of the workspace.
 * 4. Markers again. When they are applied, so is everything of the workspace that was added before them.
 * 5. The shard holds that it has moved, unless its time is over: from then on its requests go to the other one.
 * 6. Postgres hears of it, for processes that start later.
 *
 * Killed before step 5, it has not moved, and is held no longer than HOLD_MS. Killed after it, it has moved: whoever comes
 * to the shard finds there where it went, and writes that down.
 *
 * @returns the shard that it had, and for how many milliseconds its requests were held at most
 * @throws {Refusal} when it stays where it is
 */
export async function moveWorkspace(
  installation: Installation,
  workspaceId: string,
  { to, wait, say }: Asked,
): Promise<{ from: number; held: number }> {
  let moved = { from: to, held: 0 };
  await withQueue(installation, async ({ connection, producer, layout }) => {
    const { pool } = installation.database;
    if (to >= layout.shards)
      throw new Refusal(`shard ${to} does not exist: SHARDS is ${layout.shards}, and shards count from 0`);
    if (layout.shards === 1) return;
    const home = await producer.homeOf(workspaceId);
    if (home.shard === to) return;
    const move = { ...{ connection, producer, pool, workspaceId, home, to }, lanes: layout.lanes };
    const held = await until(() => tryToMove(move), {
      every: REST_MS,
      deadline: Date.now() + wait * 1000,
      isSo: (ms) => ms !== undefined,
      inVain: () =>
        say('too many jobs of the workspace are waiting; its requests continue, and the move is retried'),
    });
    if (held === undefined)
      throw new Refusal(
        `the workspace stays in shard ${home.shard}: too many of its jobs were waiting during the whole time. Try again later, or raise the time limit`,
      );
    moved = { from: home.shard, held };
    const detail = { from: home.shard, to };
    await inTransaction(pool, async (tx) => {
      await recordHome(tx, workspaceId, { shard: to, moves: home.moves + 1 });
      const subject = { kind: 'workspace', id: workspaceId };
      await recordAudit(tx, commandLine(), [{ action: 'workspaces.move', subject, workspaceId, detail }]);
    });
  });
  return moved;
}

interface Moving {
  connection: QueueConnection;
  producer: PlacedProducer;
  pool: Pool;
  workspaceId: string;
  home: Home;
  to: number;
  /** Of each shard. */
  lanes: number;
}

/** @returns milliseconds for which the workspace was held; undefined: it has not moved, and is held no longer */
async function tryToMove(moving: Moving): Promise<number | undefined> {
  const { connection, workspaceId, home, to } = moving;
  if (!(await isApplied(moving, SHORT_MS))) return undefined;
  const redis = connection.redis!;
  const moves = openMoves(redis, ADMIN_TIMEOUT_MS);
  const number = home.moves + 1;
  const begun = performance.now();
  const left = () => HOLD_MS - RESERVE_MS - (performance.now() - begun);
  if (!(await moves.begin(home.shard, workspaceId, { to, number })))
    throw new Refusal('another process is moving this workspace; wait until it has finished');
  try {
    await rest(KNOWN_MS + 10);
    // By this process's clock as well: another primary of the shard may have another one.
    const isDone = (await isApplied(moving, left())) && left() > 0;
    if (isDone && (await moves.end(home.shard, workspaceId, number))) {
      const held = Math.round(performance.now() - begun);
      await holdByReplicas(connection, home.shard);
      return held;
    }
  } finally {
    // Of one that has moved there is nothing to give up.
    await moves.giveUp(home.shard, workspaceId, number).catch(() => {});
  }
  return undefined;
}

/** Whether all of the workspace that waits in its shard has taken effect within so many milliseconds. */
async function isApplied(
  { producer, pool, workspaceId, home, lanes }: Moving,
  patience: number,
): Promise<boolean> {
  const asked = performance.now();
  const markers = Array.from({ length: lanes }, (_, lane): LaneEntry => {
    const request = { request_id: newId(), workspace_id: workspaceId, accepted_at: new Date().toISOString() };
    return {
      ...{ lane, id: envelopeId([workspaceId]) },
      envelope: { requests: [{ ...request, count: 0 }], objects: [] },
    };
  });
  // They are no requests of the workspace: whether it is held is nothing to them.
  await producer.placing!.addTo(home.shard, markers);
  const left = patience - (performance.now() - asked);
  const ids = markers.map(({ id }) => id);
  return left > 0 && (await watchApplied(pool)(ids, { patience: left })).missing.size === 0;
}

/** A primary that dies takes nothing with it that so many replicas hold. */
async function holdByReplicas({ redis, replication }: QueueConnection, shard: number): Promise<void> {
  if (!redis || !replication) return;
  await serverOfShard(redis, shard)
    .call('WAIT', replication.replicas, REPLICAS_MS)
    .catch(() => {});
}
