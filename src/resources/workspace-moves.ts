import { nowDate } from '../platform/clock.ts';
import { describeFailure } from '../platform/format.ts';
import { Refusal } from './refusal.ts';
import type { Context, Shown } from './resource.ts';

/** A move that a process of the console has started. */
interface ConsoleMove {
  to: number;
  startedAt: Date;
  /** Reason for which the move waits. */
  hindrance?: string;
  endedAt?: Date;
  /** Reason for which the workspace stays in its shard. */
  failure?: string;
}

/** Maximum number of moves whose state is kept in memory. */
const MAX_KEPT = 1000;

/** The latest move of each workspace by this process, oldest first. */
const latest = new Map<string, ConsoleMove>();

/**
 * Starts a move and returns. A move can take longer than a request of the console may take, so it continues in the
 * background. `stateOfMove` describes it.
 * @throws {Refusal} if the shard does not exist, or this process is moving the workspace
 */
export async function beginMove(
  context: Context,
  workspaceId: string,
  { to, wait }: { to: number; wait: number },
): Promise<void> {
  // Loaded only by the action that uses the queue, because each command loads this file.
  const { moveWorkspace, requireShard } = await import('./move-workspace.ts');
  await context.withQueue(async ({ layout }) => requireShard(layout, to));
  if (isMoving(workspaceId)) throw new Refusal('the workspace is being moved', 'shard', 409);
  const move: ConsoleMove = { to, startedAt: nowDate() };
  latest.delete(workspaceId);
  latest.set(workspaceId, move);
  if (latest.size > MAX_KEPT) latest.delete(latest.keys().next().value!);
  const onWait = (hindrance: string) => {
    move.hindrance = hindrance;
  };
  void moveWorkspace(context, workspaceId, { to, wait, onWait })
    .catch((error: unknown) => {
      move.failure = describeFailure(error);
    })
    .finally(() => {
      move.endedAt = nowDate();
    });
}

/** Whether a move of the workspace by this process has not ended. */
export function isMoving(workspaceId: string): boolean {
  const move = latest.get(workspaceId);
  return move !== undefined && move.endedAt === undefined;
}

/** Describes the latest move of the workspace by this process. */
export function stateOfMove(workspaceId: string): Shown {
  const move = latest.get(workspaceId);
  if (!move) return {};
  const { to, startedAt, hindrance, endedAt, failure } = move;
  if (!endedAt)
    return { badge: `moving to shard ${to}`, tone: 'warn', text: hindrance ?? 'started', at: startedAt };
  if (failure !== undefined)
    return { badge: `move to shard ${to} failed`, tone: 'bad', text: failure, at: endedAt };
  return { badge: `moved to shard ${to}`, tone: 'good', at: endedAt };
}
