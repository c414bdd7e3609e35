import type { Json } from '../../profile/json.ts';

/**
 * waiting: it needs a person. replaying: it was handed to the workers again and has not been applied yet.
 * replayed: it has taken effect.
 */
export type DeadLetterState = 'waiting' | 'replaying' | 'replayed';

/** An accepted object that could not be applied, and why. */
export interface DeadLetter {
  /** The object's own id, a UUIDv7, where it has one. */
  id: string;
  workspaceId: string;
  /** The `X-Request-Id` of the request that carried the object. */
  requestId: string;
  kind: string;
  /** An accepted object as a rule; anything, where the object broke its contract. */
  object: Json;
  reason: string;
  state: DeadLetterState;
  /** How often it was claimed for a replay. */
  replays: number;
  failedAt: Date;
}

/** The columns of a `DeadLetter`, for statements that return one. */
export const deadLetterColumns = `
  dead_letters.id, dead_letters.workspace_id as "workspaceId", dead_letters.request_id as "requestId",
  dead_letters.kind, dead_letters.object, dead_letters.reason, dead_letters.state, dead_letters.replays,
  dead_letters.failed_at as "failedAt"`;
