import type { AcceptedObject } from '../../jobs/envelope.ts';
import { findTrace, inputArrayOf, type Trace } from '../../jobs/traces.ts';
import { idsBetween, millisecondsOf } from '../../platform/ids.ts';
import { type DeadLetter, selectByRequest } from '../../store/dead-letters.ts';
import { findTraces } from '../../store/ledger.ts';
import { findRefusedRequest, type ListedRefusal } from '../../store/refused-objects.ts';
import type { Resources } from '../operation.ts';

type Status = 'accepted' | 'applied' | 'failed';

/** What has become of what stood at one place of a request. */
export interface Standing {
  input_array: string;
  index: number;
  status: Status;
  reason?: string;
}

/** What each status of a dead letter means to who sent the object. */
const tried: Record<DeadLetter['state'], Status> = {
  waiting: 'failed',
  discarded: 'failed',
  replaying: 'accepted',
  replayed: 'applied',
};

/**
 * The places of a request with what has become of them, in its order. Where several objects stood at one place (users
 * of one element of `subscription_groups`), the place stands as the worst of them does.
 */
function standings(parts: { trace: Trace; status: Status }[], deadLetters: DeadLetter[]): Standing[] {
  const places = new Map<string, Standing>();
  const note = (standing: Standing) => {
    const name = `${standing.input_array} ${standing.index}`;
    const known = places.get(name);
    if (!known || rank[standing.status] > rank[known.status]) places.set(name, standing);
  };
  for (const { trace, status } of parts) for (const place of trace.objects) note({ ...place, status });
  for (const { object, kind, state, reason } of deadLetters) {
    const failed = object as unknown as AcceptedObject | null;
    const input_array = (failed && inputArrayOf(failed)) ?? kind;
    const index = Number.isSafeInteger(failed?.index) ? failed!.index : 0;
    const status = tried[state];
    note({ input_array, index, status, ...(status === 'failed' && { reason }) });
  }
  return [...places.values()];
}

const rank: Record<Status, number> = { applied: 0, accepted: 1, failed: 2 };

/** The status of all accepted objects, or that they differ; `rejected` if none was accepted. */
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
 * Milliseconds between a request's id and those of its envelopes, at most. Both are made by one process. It gives a
 * request 15 seconds to arrive, and some more for the key, the limit and the flush before.
 */
const FARTHEST = 60_000;

/** Nearly always they are within this time. */
const NEAR = 2000;

/** ISO 8601. */
export function acceptedAt(requestId: string): string {
  return new Date(millisecondsOf(requestId)).toISOString();
}

interface Part {
  trace: Trace;
  status: Status;
  /** Where it waits, or is in work. */
  lane?: number;
}

/** What has become of a request. */
export interface FollowedRequest {
  objects: Standing[];
  unknown: number;
  waits: { envelopeId: string; lane: number }[];
  deadLetters: DeadLetter[];
  /** Objects that web refused, the first 300 of them. */
  refused: ListedRefusal[];
  /** Number of all of these. */
  rejected: number;
  /** Id of the API key that sent it; absent: none, or nobody knows any more. */
  keyId?: string;
}

/** What is known of a request, by the ids of its envelopes. */
type Parts = Map<string, Part>;

/**
 * Looks for a request where its objects can be. First in the ledger, where it is by the time of its id; then in the
 * lanes, if some of it is not in the ledger. Then in the ledger once more, since an object is in one of the two at any
 * moment.
 *
 * @returns `unknown`: how many of its objects are nowhere. `waits`: its envelopes that are in lanes. `deadLetters`:
 *   those of its objects that could not be applied at first. `refused`: those that web refused, if the request is among
 *   those that are kept. Undefined when all are nowhere
 */
export async function followRequest(
  { database: { pool }, waiting }: Pick<Resources, 'database' | 'waiting'>,
  workspaceId: string,
  requestId: string,
): Promise<FollowedRequest | undefined> {
  const parts: Parts = new Map();
  await lookIntoLedger();
  if (missing(parts) !== 0) {
    const from = millisecondsOf(requestId);
    for (const { envelopeId, lane, trace } of await waiting.find(
      requestId,
      workspaceId,
      idsBetween(from, from + FARTHEST),
    ))
      if (!parts.has(envelopeId)) parts.set(envelopeId, { trace, status: 'accepted', lane });
    await lookIntoLedger();
  }
  const deadLetters = await selectByRequest(pool, workspaceId, requestId);
  const kept = await findRefusedRequest(pool, workspaceId, requestId);
  if (parts.size === 0 && deadLetters.length === 0 && !kept) return undefined;
  const [keyId = kept?.keyId] = [...parts.values()].flatMap(({ trace }) => trace.key_id ?? []);
  return {
    ...(keyId !== undefined && { keyId }),
    objects: standings([...parts.values()], deadLetters),
    unknown: Math.max(0, missing(parts) ?? 0),
    waits: [...parts].flatMap(([envelopeId, { lane }]) => (lane === undefined ? [] : [{ envelopeId, lane }])),
    deadLetters,
    refused: kept?.objects ?? [],
    rejected: kept?.rejected ?? 0,
  };

  async function lookIntoLedger(): Promise<void> {
    const from = millisecondsOf(requestId);
    const found = await look(from, from + NEAR);
    // The envelopes of one request are made together, but the first ones may be the last of their time.
    const last = Math.max(...found.map(millisecondsOf));
    const end = found.length > 0 ? last + NEAR : from + FARTHEST;
    if (end > from + NEAR) await look(from + NEAR, end);
  }

  async function look(from: number, to: number): Promise<string[]> {
    const rows = await findTraces(pool, requestId, idsBetween(from, to));
    return rows.flatMap(({ envelopeId, traces }) => {
      const trace = findTrace(traces, requestId, workspaceId);
      if (!trace) return [];
      parts.set(envelopeId, { trace, status: 'applied' });
      return [envelopeId];
    });
  }
}

/** Objects that no part has; undefined: there is no part to say how many there are. */
function missing(parts: Parts): number | undefined {
  const [first] = parts.values();
  if (!first) return undefined;
  return [...parts.values()].reduce((left, { trace }) => left - trace.objects.length, first.trace.total);
}
