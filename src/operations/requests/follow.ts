import type { AcceptedObject } from '../../jobs/envelope.ts';
import { findTrace, inputArrayOf, type Trace } from '../../jobs/traces.ts';
import { idsBetween, millisecondsOf } from '../../platform/ids.ts';
import { type DeadLetter, selectByRequest } from '../../store/dead-letters.ts';
import { findTraces } from '../../store/ledger.ts';
import { findRefusedRequest, type ListedRefusal } from '../../store/refused-objects.ts';
import type { Resources } from '../operation.ts';

type Status = 'accepted' | 'applied' | 'failed';

/** The status at one position of a request. */
export interface Standing {
  input_array: string;
  index: number;
  status: Status;
  reason?: string;
}

/** The status of an object with a dead letter, by the state of the dead letter. */
const statusOfDeadLetter: Record<DeadLetter['state'], Status> = {
  waiting: 'failed',
  discarded: 'failed',
  replaying: 'accepted',
  replayed: 'applied',
};

/**
 * Returns the status of each position of the request, in its order. If several objects come from one position (the
 * users of an element of `subscription_groups`), the position has their worst status.
 */
function standings(parts: { trace: Trace; status: Status }[], deadLetters: DeadLetter[]): Standing[] {
  const byPosition = new Map<string, Standing>();
  const add = (standing: Standing) => {
    const name = `${standing.input_array} ${standing.index}`;
    const other = byPosition.get(name);
    if (!other || rank[standing.status] > rank[other.status]) byPosition.set(name, standing);
  };
  for (const { trace, status } of parts) for (const position of trace.objects) add({ ...position, status });
  for (const { object, kind, state, reason } of deadLetters) {
    const failed = object as unknown as AcceptedObject | null;
    const input_array = (failed && inputArrayOf(failed)) ?? kind;
    const index = Number.isSafeInteger(failed?.index) ? failed!.index : 0;
    const status = statusOfDeadLetter[state];
    add({ input_array, index, status, ...(status === 'failed' && { reason }) });
  }
  return [...byPosition.values()];
}

const rank: Record<Status, number> = { applied: 0, accepted: 1, failed: 2 };

/**
 * Returns the common status of all accepted objects, `partially_applied` if they differ, or `rejected` if none was
 * accepted.
 */
export function overall({
  objects,
  unknown,
  rejected,
}: Pick<FollowedRequest, 'objects' | 'unknown' | 'rejected'>): Status | 'partially_applied' | 'rejected' {
  if (objects.length + unknown === 0 && rejected > 0) return 'rejected';
  const statuses = new Set(objects.map(({ status }) => status));
  const [only] = statuses;
  return statuses.size === 1 && unknown === 0 ? only! : 'partially_applied';
}

/**
 * Maximum milliseconds between the id of a request and the ids of its envelopes. The same process creates both. A
 * request may take 15 s to arrive, and the key, the rate limit and the flush take some more time.
 */
const MAX_DELAY_MS = 60_000;

/** Milliseconds within which almost all envelopes are created. */
const USUAL_DELAY_MS = 2000;

/** Returns the time of the request as ISO 8601. */
export function acceptedAt(requestId: string): string {
  return new Date(millisecondsOf(requestId)).toISOString();
}

interface Part {
  trace: Trace;
  status: Status;
  /** Lane of a waiting envelope. Absent if the envelope has been applied. */
  lane?: number;
}

/** The outcome of a request, as far as it is stored. */
export interface FollowedRequest {
  objects: Standing[];
  unknown: number;
  waits: { envelopeId: string; lane: number }[];
  deadLetters: DeadLetter[];
  /** Objects that web refused, at most the first 300. */
  refused: ListedRefusal[];
  /** Number of all objects that web refused. */
  rejected: number;
  /** Id of the API key that sent the request. Absent if there was no API key, or if its id is no longer stored. */
  keyId?: string;
}

/** The envelopes of a request, by id. */
type Parts = Map<string, Part>;

/**
 * Finds the objects of a request. It reads the ledger around the time of the request id, then the lanes if objects are
 * missing, and then the ledger again, because a worker may have applied an envelope between the two reads.
 *
 * @returns `unknown`: number of objects that were not found. `waits`: envelopes that wait in lanes. `deadLetters`:
 * objects that could not be applied at the first attempt. `refused`: objects that web refused, if the request is among
 * the stored ones. Undefined if nothing was found
 */
export async function followRequest(
  { database, waiting }: Pick<Resources, 'database' | 'waiting'>,
  workspaceId: string,
  requestId: string,
): Promise<FollowedRequest | undefined> {
  const { pool } = database;
  const parts: Parts = new Map();
  await readLedger();
  if (missing(parts) !== 0) {
    const from = millisecondsOf(requestId);
    for (const { envelopeId, lane, trace } of await waiting.find(
      requestId,
      workspaceId,
      idsBetween(from, from + MAX_DELAY_MS),
    ))
      if (!parts.has(envelopeId)) parts.set(envelopeId, { trace, status: 'accepted', lane });
    await readLedger();
  }
  const deadLetters = await selectByRequest(pool, workspaceId, requestId);
  const kept = await findRefusedRequest(database, workspaceId, requestId);
  if (parts.size === 0 && deadLetters.length === 0 && !kept) return undefined;
  const [keyId = kept?.keyId] = [...parts.values()].flatMap(({ trace }) => trace.key_id ?? []);
  return {
    ...(keyId !== undefined && { keyId }),
    objects: standings([...parts.values()], deadLetters),
    unknown: Math.max(0, missing(parts) ?? (deadLetters.length > 0 ? 0 : (kept?.accepted ?? 0))),
    waits: [...parts].flatMap(([envelopeId, { lane }]) => (lane === undefined ? [] : [{ envelopeId, lane }])),
    deadLetters,
    refused: kept?.objects ?? [],
    rejected: kept?.rejected ?? 0,
  };

  async function readLedger(): Promise<void> {
    const from = millisecondsOf(requestId);
    const envelopeIds = await readTraces(from, from + USUAL_DELAY_MS);
    // All envelopes of a request are created at about the same time, but this range may end between two of them.
    const last = Math.max(...envelopeIds.map(millisecondsOf));
    const end = envelopeIds.length > 0 ? last + USUAL_DELAY_MS : from + MAX_DELAY_MS;
    if (end > from + USUAL_DELAY_MS) await readTraces(from + USUAL_DELAY_MS, end);
  }

  async function readTraces(from: number, to: number): Promise<string[]> {
    const rows = await findTraces(pool, requestId, idsBetween(from, to));
    return rows.flatMap(({ envelopeId, traces }) => {
      const trace = findTrace(traces, requestId, workspaceId);
      if (!trace) return [];
      parts.set(envelopeId, { trace, status: 'applied' });
      return [envelopeId];
    });
  }
}

/**
 * Returns the number of objects that were not found, or undefined if no envelope was found, because each envelope has
 * the total.
 */
function missing(parts: Parts): number | undefined {
  const [first] = parts.values();
  if (!first) return undefined;
  return [...parts.values()].reduce((left, { trace }) => left - trace.objects.length, first.trace.total);
}
