import { v5 as uuidv5, version } from 'uuid';
import { objectSchemas } from '../jobs/catalog.ts';
import { type AcceptedObject, type Envelope, type ObjectKind, userIdentifiers } from '../jobs/envelope.ts';
import { millisecondsOf } from '../platform/ids.ts';
import { identifierText } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { findUnstorable } from '../profile/values.ts';
import { compile, describeError } from '../schemas/compile.ts';
import { type Actor, audited } from '../store/audit.ts';
import type { Database } from '../store/database.ts';
import { fixDeadLetter, readDeadLetter } from '../store/dead-letter-actions.ts';
import {
  claimWaitingForReplay,
  type DeadLetter,
  deadLettersAudited,
  selectDeadLetters,
} from '../store/dead-letters.ts';
import { type LaneEntry, type LaneProducer, laneOf } from './lanes.ts';
import { concernedLanes, fenceEntries, fenceLanes } from './pack.ts';

/** A job of the dead-letter queue: the view of a dead letter in the console. */
export interface DeadLetterJob {
  dead_letter_id: string;
  request_id: string;
  workspace_id: string;
  reason: string;
  object: Json;
}

export function toDeadLetterJob({ id, requestId, workspaceId, reason, object }: DeadLetter): DeadLetterJob {
  return displayable({
    dead_letter_id: id,
    request_id: requestId,
    workspace_id: workspaceId,
    reason,
    object,
  });
}

/** A JSON escape that jsonb refuses, with the backslashes before it: U+0000 or half of a surrogate pair. */
const unstorable = /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g;

/**
 * Replaces what jsonb refuses by U+FFFD, because the queue on Postgres stores job data as jsonb. A replay uses the
 * unchanged object from the table.
 */
function displayable(data: DeadLetterJob): DeadLetterJob {
  return JSON.parse(JSON.stringify(data).replace(unstorable, '$1\\ufffd'));
}

/** Dead letters per add. Each may hold 50 KB of properties: 5 MB at most. */
const CHUNK = 100;

export interface ReplayContext {
  database: Pick<Database, 'pool'>;
  producer: LaneProducer;
  /** The setting LANES. */
  lanes: number;
  /** Recorded in the audit log. */
  actor: Actor;
}

/** Result of a replay: each given id is in exactly one of the lists. */
interface ReplayResult {
  /** Added to their lanes again. */
  enqueued: string[];
  /** Had taken effect before. */
  alreadyReplayed: string[];
  /** Were discarded by an operator, and stay discarded. */
  discarded: string[];
  /** Do not match any dead letter. */
  unknown: string[];
}

/**
 * Sends dead letters to the workers again. Each takes effect once, even if several callers replay it: a claim assigns
 * the replay number, the envelope id is derived from that number, and the ledger stores envelope ids. A dead letter
 * that was claimed before but not applied is enqueued again under the same envelope id, because the process that
 * claimed it may have died before it added the envelope.
 * @throws {QueueUnavailable} if the queue does not confirm every add; calling again is safe and continues.
 */
export async function replayDeadLetters(
  context: ReplayContext,
  ids: readonly string[],
): Promise<ReplayResult> {
  const result: ReplayResult = { enqueued: [], alreadyReplayed: [], discarded: [], unknown: [] };
  // Ids begin with their time, so sorting restores the order in which the objects were accepted.
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
    return { result: undefined, entries: deadLettersAudited('dead_letters.replay', claimed) };
  });
  const deadLetters = await selectDeadLetters(database.pool, ids);
  const replaying = deadLetters.filter(({ state }) => state === 'replaying');
  if (replaying.length > 0)
    await producer.add(replaying.flatMap((deadLetter) => laneEntries(deadLetter, lanes)));
  for (const { id, state } of deadLetters) {
    if (state === 'discarded') result.discarded.push(id);
    else if (state === 'replayed') result.alreadyReplayed.push(id);
    // A dead letter in state `waiting` was enqueued after its claim and has failed again.
    else result.enqueued.push(id);
  }
  const existing = new Set(deadLetters.map(({ id }) => id));
  result.unknown.push(...ids.filter((id) => !existing.has(id)));
}

/**
 * Creates one envelope per dead letter, so that an object that fails again fails alone. It goes to the lane of its
 * identifier, or to the lanes of all identifiers as a fence. The object has the dead letter's id, by which the worker
 * marks it as replayed or as waiting again.
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
    ? fenceEntries(id, fenceLanes(concerned, workspaceId, lanes), envelope)
    : [{ lane: concerned[0]!, id, envelope }];
}

/**
 * Lists the lanes in ascending order. If the object is so malformed that no identifier can be read, its id determines
 * the lane.
 */
function lanesOf(object: AcceptedObject, workspaceId: string, lanes: number): number[] {
  try {
    return [...new Set(concernedLanes(object, workspaceId, lanes))].sort((one, other) => one - other);
  } catch {
    return [laneOf(workspaceId, object.id, lanes)];
  }
}

/** Ids created by web are UUIDv7, which begin with their time. */
function acceptedAt({ id, failedAt }: DeadLetter): string {
  if (version(id) !== 7) return failedAt.toISOString();
  return new Date(millisecondsOf(id)).toISOString();
}

const checkObject = new Map(
  Object.entries(objectSchemas).map(([kind, schema]) => [kind as ObjectKind, compile(schema)]),
);

/** Maximum bytes of JSON of a corrected object, well above what web accepts. */
export const MAX_FIXED_BYTES = 1_048_576;

/** The rule that a corrected object breaks, in one sentence for the operator. */
export class NotFixed extends Error {
  override name = 'NotFixed';
}

/**
 * Replaces the object of a waiting dead letter by a corrected one and replays it. The original object is kept.
 *
 * @param text JSON of an object of the same kind
 * @param by the operator who corrects it
 * @throws {NotFixed} with the rule that is broken; {QueueUnavailable} if it is corrected but may not be enqueued yet
 */
export async function fixAndReplay(
  context: ReplayContext,
  id: string,
  { text, by }: { text: string; by: string },
): Promise<ReplayResult> {
  const { pool } = context.database;
  const letter = await readDeadLetter(pool, id, 0);
  if (!letter) throw new NotFixed(`no dead letter has the id ${id}`);
  const names = userIdentifiers(readMended(text, letter.kind)).map(identifierText);
  const { actor } = context;
  if (!(await fixDeadLetter(pool, id, { object: text, by, names, actor })))
    throw new NotFixed(`the dead letter is no longer waiting: it is ${letter.state}`);
  return replayDeadLetters(context, [id]);
}

function readMended(text: string, kind: string): AcceptedObject {
  if (Buffer.byteLength(text) > MAX_FIXED_BYTES)
    throw new NotFixed(`the object must have at most ${MAX_FIXED_BYTES} bytes`);
  let object: unknown;
  try {
    object = JSON.parse(text);
  } catch (error) {
    throw new NotFixed(`the object is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof object !== 'object' || object === null || Array.isArray(object))
    throw new NotFixed('the object must be a JSON object');
  const unstorable = findUnstorable(object as Json);
  if (unstorable) throw new NotFixed(unstorable.error);
  const given = (object as { kind?: unknown }).kind;
  if (kind !== 'envelope' && given !== kind) throw new NotFixed(`'kind' must stay '${kind}'`);
  const check = checkObject.get(kind as ObjectKind);
  if (check && !check(object)) throw new NotFixed(describeError(check.errors![0]!).error);
  return object as AcceptedObject;
}
