import { now } from '../platform/clock.ts';
import { describeFailure } from '../platform/format.ts';
import { newId } from '../platform/ids.ts';
import { until } from '../platform/poll.ts';
import {
  LOST_SECONDS,
  recordMoveStart,
  recordMoveState,
  type WorkspaceMove,
} from '../store/workspace-moves.ts';
import type { moveWorkspace } from './move-workspace.ts';
import { Refusal } from './refusal.ts';
import type { Context, Shown } from './resource.ts';

/** Milliseconds between two records that the process of a move is alive. */
const RENEW_MS = 2000;

/** Maximum number of attempts to record the end of a move. */
const MAX_END_ATTEMPTS = 15;

interface MoveOptions {
  to: number;
  wait: number;
  /** Called with the reason for which the move waits. */
  onWait?(hindrance: string): void;
}

type Moved = Awaited<ReturnType<typeof moveWorkspace>>;

/**
 * Starts a move whose state every process can read, and returns its end.
 * @throws {Refusal} if the shard does not exist, or another process is moving the workspace
 */
export async function beginMove(
  context: Context,
  workspaceId: string,
  { to, wait, onWait }: MoveOptions,
): Promise<{ ended: Promise<Moved> }> {
  // Loaded only by the action that uses the queue, because each command of workspaces loads this file.
  const { moveWorkspace: move, requireShard } = await import('./move-workspace.ts');
  let start = () => {};
  const started = new Promise<void>((resolve) => {
    start = resolve;
  });
  const { database, actor } = context;
  const { pool } = database;
  const record = { workspaceId, id: newId() };
  // A record that could not be written is followed by the next one.
  const note = (state?: Parameters<typeof recordMoveState>[2]) =>
    recordMoveState(pool, record, state).catch(() => {});
  const noteEnd = (failure?: string) => {
    const state = { hasEnded: true, ...(failure !== undefined && { failure }) };
    const store = () =>
      recordMoveState(pool, record, state).then(
        () => true,
        () => false,
      );
    let attempts = 0;
    const isSo = (isStored: boolean) => isStored || ++attempts >= MAX_END_ATTEMPTS;
    return until(store, { every: RENEW_MS, isSo });
  };
  const waits = (hindrance: string) => {
    onWait?.(hindrance);
    void note({ hindrance });
  };
  const ended = context.withQueue(async (queue) => {
    requireShard(queue.layout, to);
    if (!(await recordMoveStart(pool, workspaceId, { id: record.id, to })))
      throw new Refusal('the workspace is being moved; wait until the move has ended', 'shard', 409);
    start();
    const renewal = setInterval(() => void note(), RENEW_MS).unref();
    try {
      const moved = await move({ database, actor, queue }, workspaceId, { to, wait, onWait: waits });
      await noteEnd();
      return moved;
    } catch (error) {
      await noteEnd(describeFailure(error));
      throw error;
    } finally {
      clearInterval(renewal);
    }
  });
  await Promise.race([started, ended]);
  return { ended };
}

/** A workspace with its latest move, as Prisma reads it. */
interface Moving {
  shardMove: unknown;
}

const isLost = ({ seenAt }: WorkspaceMove) => Date.parse(seenAt) < now() - LOST_SECONDS * 1000;

/** Whether a move of the workspace has not ended, and its process is alive. */
export function isMoving({ shardMove }: Moving): boolean {
  const move = shardMove as WorkspaceMove | null;
  return move !== null && move.endedAt === undefined && !isLost(move);
}

/** Describes the latest move of the workspace. */
export function stateOfMove({ shardMove }: Moving): Shown {
  const move = shardMove as WorkspaceMove | null;
  if (move === null) return {};
  const { to, startedAt, hindrance, endedAt, failure, seenAt } = move;
  if (endedAt === undefined && isLost(move))
    return {
      ...{ badge: `move to shard ${to} interrupted`, tone: 'bad', at: new Date(seenAt) },
      text: 'the process that moved the workspace has ended. If the workspace is not in the shard, move it again',
    };
  if (endedAt === undefined) {
    const at = new Date(startedAt);
    return { badge: `moving to shard ${to}`, tone: 'warn', text: hindrance ?? 'started', at };
  }
  const at = new Date(endedAt);
  if (failure !== undefined) return { badge: `move to shard ${to} failed`, tone: 'bad', text: failure, at };
  return { badge: `moved to shard ${to}`, tone: 'good', at };
}
