import { v5 as uuidv5, version } from 'uuid';
import { type AcceptedObject, type Envelope, namedIdentifiers } from '../jobs/envelope.ts';
import { millisecondsOf } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { findUnstorable, isRecord } from '../profile/values.ts';
import { type Actor, audited } from '../store/audit.ts';
import type { Database } from '../store/database.ts';
import { mendDeadLetter, readLetter } from '../store/dead-letter-actions.ts';
import {
  claimWaitingForReplay,
  type DeadLetter,
  identifierText,
  lettersAudited,
  selectDeadLetters,
} from '../store/dead-letters.ts';
import { type LaneEntry, type LaneProducer, laneOf } from './lanes.ts';
import { concernedLanes, fenceEntries } from './pack.ts';

/** A job of the dead-letter queue: what the dashboard shows of a dead letter. */
export interface DeadLetterJob {
  dead_letter_id: string;
  request_id: string;
  workspace_id: string;
  reason: string;
  /** Without its place in an envelope that is gone. */
  object: Json;
}

export function toDeadLetterJob({ id, requestId, workspaceId, reason, object }: DeadLetter): DeadLetterJob {
  const shown = isRecord(object) ? { ...object } : object;
  if (isRecord(shown)) delete shown.request;
  return displayable({
    dead_letter_id: id,
    request_id: requestId,
    workspace_id: workspaceId,
    reason,
    object: shown,
  });
}

/** An escape, with the backslashes before it, that jsonb refuses: U+0000 or one half of a surrogate pair. */
const unstorable = /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/**
 * On Postgres the queue keeps job data as jsonb, which cannot hold everything that an object can. What it
 * refuses is shown as U+FFFD; a replay takes the object from the table, as it came.
 */
function displayable(data: DeadLetterJob): DeadLetterJob {
  return JSON.parse(JSON.stringify(data).replace(unstorable, '$1\\ufffd'));
}

/** Dead letters in one add. Each may hold 50 KB of properties: 5 MB at most. */
const CHUNK = 100;

export interface ReplayContext {
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** LANES. */
  lanes: number;
  /** For the audit. */
  actor: Actor;
}

/** What became of the ids, each in one of the lists. */
export interface ReplayResult {
  /** In their lanes again. */
  enqueued: string[];
  /** Had taken effect before. */
  alreadyReplayed: string[];
  /** Were given up by a person, and stay so. */
  discarded: string[];
  /** No dead letter has this id. */
  unknown: string[];
}

/**
 * Hands dead letters to the workers again. Each takes effect once, however often and from wherever this is called: a
 * claim gives the replay its number, the number its envelope id, and the ledger knows envelope ids. One that was
 * claimed before and has not been applied yet is enqueued again under the same envelope id. Whoever claimed it may have
 * died before it reached its lane.
 * @throws {QueueUnavailable} when it is not known that all are stored; calling again is safe and goes on.
 */
export async function replayDeadLetters(
  context: ReplayContext,
  ids: readonly string[],
): Promise<ReplayResult> {
  const result: ReplayResult = { enqueued: [], alreadyReplayed: [], discarded: [], unknown: [] };
  // In the order in which the objects were accepted: an id begins with its time.
  const ordered = [...new Set(ids.map((id) => id.toLowerCase()))].sort();
  for (let start = 0; start < ordered.length; start += CHUNK) {
    await replayChunk(context, ordered.slice(start, start + CHUNK), result);
  }
  return result;
}

async function replayChunk(
  { database, producer, lanes, actor }: ReplayContext,
  ids: string[],
  result: ReplayResult,
) {
  await audited(database.pool, actor, async (tx) => {
    const claimed = await claimWaitingForReplay(tx, ids);
    return { result: undefined, entries: lettersAudited('dead_letters.replay', claimed) };
  });
  const found = await selectDeadLetters(database.pool, ids);
  const replaying = found.filter(({ state }) => state === 'replaying');
  if (replaying.length > 0)
    await producer.add(replaying.flatMap((deadLetter) => laneEntries(deadLetter, lanes)));
  for (const { id, state } of found) {
    if (state === 'discarded') result.discarded.push(id);
    else if (state === 'replayed') result.alreadyReplayed.push(id);
    // One that waits again already was in its lane, and has failed again, since it was claimed.
    else result.enqueued.push(id);
  }
  const known = new Set(found.map(({ id }) => id));
  result.unknown.push(...ids.filter((id) => !known.has(id)));
}

/**
 * An envelope of its own for each dead letter, in the lane of its identifier, or as a fence in those of all that it
 * names. One that fails again fails alone. It goes under the dead letter's id, by which the worker settles it or lets
 * it wait again.
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

/** The edge's ids are UUIDv7, which begin with their time. */
function acceptedAt({ id, failedAt }: DeadLetter): string {
  if (version(id) !== 7) return failedAt.toISOString();
  return new Date(millisecondsOf(id)).toISOString();
}

/** Bytes of JSON of an object that can be mended: no edge lets a larger one through for long. */
export const MAX_MENDED_BYTES = 1_048_576;

/** Why an object cannot take the place of the one that failed; one sentence for a person. */
export class NotMended extends Error {
  override name = 'NotMended';
}

/**
 * Puts a mended object into the place of one that waits, and replays it. What came first is kept beside it.
 *
 * @param text JSON, of an object of the same kind
 * @param by who mends it
 * @throws {NotMended} with the rule that is broken; {QueueUnavailable}: it is mended, and may not be replayed yet
 */
export async function mendAndReplay(
  context: ReplayContext,
  id: string,
  { text, by }: { text: string; by: string },
): Promise<ReplayResult> {
  const { pool } = context.database;
  const letter = await readLetter(pool, id, 0);
  if (!letter) throw new NotMended(`no dead letter has the id ${id}`);
  const names = namesIn(readMended(text, letter.kind));
  const { actor } = context;
  if (!(await mendDeadLetter(pool, id, { object: text, by, names, actor })))
    throw new NotMended(`the dead letter is no longer waiting: it is ${letter.state}`);
  return replayDeadLetters(context, [id]);
}

function readMended(text: string, kind: string): AcceptedObject {
  if (Buffer.byteLength(text) > MAX_MENDED_BYTES)
    throw new NotMended(`the object must have at most ${MAX_MENDED_BYTES} bytes`);
  let object: unknown;
  try {
    object = JSON.parse(text);
  } catch (error) {
    throw new NotMended(`the object is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof object !== 'object' || object === null || Array.isArray(object))
    throw new NotMended('the object must be a JSON object');
  const unstorable = findUnstorable(object as Json);
  if (unstorable) throw new NotMended(unstorable.error);
  const given = (object as { kind?: unknown }).kind;
  if (kind !== 'envelope' && given !== kind) throw new NotMended(`'kind' must stay '${kind}'`);
  return object as AcceptedObject;
}

/** Whom an object is about, as far as it can be read: it may still break its contract. */
function namesIn(object: AcceptedObject): string[] {
  try {
    const named = object.kind === 'attributes' ? [object.identifier!] : namedIdentifiers(object);
    return named.map(identifierText);
  } catch {
    return [];
  }
}
