import { v5 as uuidv5, version } from 'uuid';
import type { AcceptedObject, Envelope } from '../jobs/envelope.ts';
import type { Database } from '../store/database.ts';
import { claimWaitingForReplay, type DeadLetter, selectDeadLetters } from '../store/dead-letters.ts';
import { type LaneEntry, type LaneProducer, laneOf } from './lanes.ts';
import { concernedLanes, fenceEntries } from './pack.ts';

/** Dead letters in one add. Each may hold 50 KB of properties: 5 MB at most. */
const CHUNK = 100;

export interface ReplayContext {
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** LANES. */
  lanes: number;
}

/** What became of the ids, each in one of the lists. */
export interface ReplayResult {
  /** In their lanes again. */
  enqueued: string[];
  /** Had taken effect before. */
  alreadyReplayed: string[];
  /** No dead letter has this id. */
  unknown: string[];
}

/**
 * Hands dead letters to the workers again. Each takes effect once, however often and from wherever this is
 * called: a claim gives the replay its number, the number its envelope id, and the ledger knows envelope ids.
 * One that was claimed before and has not been applied yet is enqueued again under the same envelope id,
 * since whoever claimed it may have died before it reached its lane.
 * @throws {QueueUnavailable} when it is not known that all are stored; calling again is safe and goes on.
 */
export async function replayDeadLetters(
  context: ReplayContext,
  ids: readonly string[],
): Promise<ReplayResult> {
  const result: ReplayResult = { enqueued: [], alreadyReplayed: [], unknown: [] };
  // In the order in which the objects were accepted: an id begins with its time.
  const ordered = [...new Set(ids.map((id) => id.toLowerCase()))].sort();
  for (let start = 0; start < ordered.length; start += CHUNK) {
    await replayChunk(context, ordered.slice(start, start + CHUNK), result);
  }
  return result;
}

async function replayChunk(
  { database, producer, lanes }: ReplayContext,
  ids: string[],
  result: ReplayResult,
) {
  await claimWaitingForReplay(database.pool, ids);
  const found = await selectDeadLetters(database.pool, ids);
  const replaying = found.filter(({ state }) => state === 'replaying');
  if (replaying.length > 0)
    await producer.add(replaying.flatMap((deadLetter) => laneEntries(deadLetter, lanes)));
  for (const { id, state } of found) {
    // One that waits again already was in its lane, and has failed again, since it was claimed.
    (state === 'replayed' ? result.alreadyReplayed : result.enqueued).push(id);
  }
  const known = new Set(found.map(({ id }) => id));
  result.unknown.push(...ids.filter((id) => !known.has(id)));
}

/**
 * An envelope of its own for each dead letter, in the lane of its identifier, or as a fence in those of all that it
 * names: one that fails again fails alone. It goes under the dead letter's id, by which the worker settles it or
 * lets it wait again.
 */
function laneEntries(deadLetter: DeadLetter, lanes: number): LaneEntry[] {
  const { id: letterId, workspaceId, requestId, object, replays } = deadLetter;
  const replayed = { ...(object as unknown as AcceptedObject), id: letterId };
  const id = uuidv5(String(replays), letterId);
  const envelope: Envelope = {
    requests: [
      { request_id: requestId, workspace_id: workspaceId, accepted_at: acceptedAt(deadLetter), count: 1 },
    ],
    objects: [replayed],
    replay: true,
  };
  const concerned = lanesOf(replayed, workspaceId, lanes);
  return concerned.length > 1
    ? fenceEntries(id, concerned, envelope)
    : [{ lane: concerned[0]!, id, envelope }];
}

/** Ascending. An object that broke its contract, so that no identifier can be read, goes by its id. */
function lanesOf(object: AcceptedObject, workspaceId: string, lanes: number): number[] {
  try {
    return [...new Set(concernedLanes(object, workspaceId, lanes))].sort((one, other) => one - other);
  } catch {
    return [laneOf(workspaceId, object.id, lanes)];
  }
}

/** The edge's ids are UUIDv7, which begin with the milliseconds since 1970 in 48 bits. */
function acceptedAt({ id, failedAt }: DeadLetter): string {
  if (version(id) !== 7) return failedAt.toISOString();
  return new Date(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)).toISOString();
}
