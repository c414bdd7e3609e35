import { v5 as uuidv5 } from 'uuid';
import {
  type AcceptedObject,
  type Envelope,
  type EnvelopeRequest,
  namedIdentifiers,
} from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import type { PackedEnvelope } from '../store/idempotency-keys.ts';
import { envelopeId, identifierKey, type LaneEntry, laneOf } from './lanes.ts';

/**
 * Lists the lanes in which an object must keep its order; the object itself is stored in the first one. A delete
 * concerns all lanes, because earlier operations on its user may have used identifiers that the delete does not
 * contain.
 * @throws if the object does not have the form of its kind
 */
export function concernedLanes(object: AcceptedObject, workspaceId: string, lanes: number): number[] {
  if (object.kind === 'delete') return Array.from({ length: lanes }, (_, lane) => lane);
  const identifiers = namedIdentifiers(object);
  // An object without identifiers has no order with other operations. Its id only spreads the load.
  if (identifiers.length === 0) return [laneOf(workspaceId, object.id, lanes)];
  return identifiers.map((identifier) => laneOf(workspaceId, identifierKey(identifier), lanes));
}

/**
 * Builds the entries of a fence, an envelope that is ordered in several lanes: the envelope in the first lane, and a
 * mark without objects in each other lane.
 * @param id of the envelope, a UUID; `markOfFence` derives the ids of the marks from it
 * @param lanes at least two, ascending
 */
export function fenceEntries(id: string, lanes: number[], envelope: Envelope): LaneEntry[] {
  const fence = { id, lanes };
  return lanes.map((lane, index) =>
    index === 0
      ? { lane, id, envelope: { ...envelope, fence } }
      : { lane, id: markOfFence(id, lane), envelope: { requests: [], objects: [], fence } },
  );
}

/** Returns the id of the mark of a fence in a lane. */
export const markOfFence = (fenceId: string, lane: number): string => uuidv5(String(lane), fenceId);

/** The accepted objects of one request, and the approximate bytes of their JSON text. */
export interface Packable {
  request: EnvelopeRequest;
  objects: AcceptedObject[];
  bytes: number;
  /** The workspace shares no envelope with other workspaces. */
  apart?: boolean;
  /** The request shares no envelope with other requests. Requires `apart`. */
  alone?: boolean;
}

/** Maximum bytes in one envelope, unless a single object is larger. Bounds how much a worker processes at once. */
export const MAX_ENVELOPE_BYTES = 4_194_304;

/** The envelope of a lane that is being filled. */
interface Open {
  lane: number;
  requests: (EnvelopeRequest & { count: number })[];
  /** The API key of the last request in it. */
  key: string | null | undefined;
  objects: AcceptedObject[];
  bytes: number;
}

/** The lane of each object of a batch, in the order of the batch. */
interface LaneAssignment {
  lanes: Uint8Array;
  /**
   * The lanes that objects of the batch connect by identifiers in several lanes, ascending; empty if every object has
   * one lane.
   */
  fence: number[];
}

/**
 * Packs requests into as few envelopes as possible and keeps their order within each lane. If some object has
 * identifiers in several lanes, all objects of these lanes share fences over all of them, so that they keep their
 * order too.
 */
export function pack(batch: readonly Packable[], lanes: number, maxObjects: number): LaneEntry[] {
  const filled: Open[] = [];
  /** Open envelopes by lane, also by workspace if it is `apart`, and by request if it is `alone`. */
  const open = new Map<number | string, Open>();
  const assignment = lanes === 1 ? undefined : assignLanes(batch, lanes);
  let index = 0;
  for (const { request, objects, bytes, apart, alone } of batch) {
    const own = (lane: number) => `${lane} ${request.workspace_id}`;
    const suffix = alone ? ` ${request.request_id}` : '';
    // Later requests of the workspace must not join an envelope from before this request.
    if (alone) for (let lane = 0; lane < lanes; lane++) open.delete(own(lane));
    const share = bytes / objects.length;
    const parts = new Map<Open, EnvelopeRequest & { count: number }>();
    let envelope: Open | undefined;
    let part: (EnvelopeRequest & { count: number }) | undefined;
    for (const object of objects) {
      const lane = assignment ? assignment.lanes[index++]! : 0;
      if (envelope?.lane !== lane || isFull(envelope, share, maxObjects)) {
        const whose = apart ? own(lane) + suffix : lane;
        envelope = open.get(whose);
        if (!envelope || isFull(envelope, share, maxObjects)) {
          envelope = { lane, requests: [], key: undefined, objects: [], bytes: 0 };
          open.set(whose, envelope);
          filled.push(envelope);
        }
        part = parts.get(envelope);
        if (!part) {
          // Usually equal to the key of the previous request and then omitted.
          const key_id = request.key_id === envelope.key ? undefined : (request.key_id ?? null);
          part = partOf(request, key_id);
          envelope.key = request.key_id;
          parts.set(envelope, part);
          envelope.requests.push(part);
        }
      }
      part!.count++;
      envelope.objects.push(object);
      envelope.bytes += share;
    }
    // Each part contains the number of objects of the whole request.
    if (parts.size > 1) for (const one of parts.values()) one.objects = objects.length;
  }
  return filled.flatMap(({ lane, requests, objects }) => {
    const envelope: Envelope = { requests, objects };
    if (assignment?.fence[0] === lane) return fenceEntries(newId(), assignment.fence, envelope);
    return [{ lane, id: envelopeId(requests.map(ownerOf)), envelope }];
  });
}

const ownerOf = ({ workspace_id }: EnvelopeRequest): string => workspace_id;

/** Copies member by member for speed: each request has a part, and most requests have one object. */
function partOf(
  { request_id, workspace_id, accepted_at, objects, traceparent }: EnvelopeRequest,
  key_id: string | null | undefined,
): EnvelopeRequest & { count: number } {
  const part: EnvelopeRequest & { count: number } = {
    request_id,
    workspace_id,
    accepted_at,
    key_id,
    count: 0,
  };
  if (objects !== undefined) part.objects = objects;
  if (traceparent !== undefined) part.traceparent = traceparent;
  return part;
}

/** The ids of the envelopes that hold objects of a request, which are the keys of their ledger rows. */
export function envelopesOf({ request_id }: EnvelopeRequest, entries: LaneEntry[]): string[] {
  return entries
    .filter(({ envelope }) => envelope.requests.some((request) => request.request_id === request_id))
    .map(({ id }) => id);
}

/** The id, lane and number of objects of each envelope. */
export const shapeOf = (entries: LaneEntry[]): PackedEnvelope[] =>
  entries.map(({ id, lane, envelope }) => [id, lane, envelope.objects.length]);

/**
 * Gives the envelopes of a repeated request the ids of the first request's envelopes, so that the ledger skips
 * envelopes that have taken effect.
 *
 * @param first the envelopes of the first request
 * @returns undefined when the repeated request is packed differently, for example for another number of lanes
 */
export function withIdsOf(first: PackedEnvelope[], entries: LaneEntry[]): LaneEntry[] | undefined {
  const isSame = ([, lane, objects]: PackedEnvelope, index: number) =>
    entries[index]!.lane === lane && entries[index]!.envelope.objects.length === objects;
  if (first.length !== entries.length || !first.every(isSame)) return undefined;
  const ids = new Map(entries.map(({ id }, index) => [id, first[index]![0]]));
  return entries.map(({ id, lane, envelope }) => {
    const { fence } = envelope;
    const its = fence && { ...fence, id: ids.get(fence.id)! };
    return { lane, id: ids.get(id)!, envelope: its ? { ...envelope, fence: its } : envelope };
  });
}

/** Assigns each object its own lane. Objects in lanes that a fence connects get the first of these lanes. */
function assignLanes(batch: readonly Packable[], lanes: number): LaneAssignment {
  const assignment = new Uint8Array(batch.reduce((sum, { objects }) => sum + objects.length, 0));
  const fenced = new Set<number>();
  let index = 0;
  for (const { request, objects } of batch) {
    for (const object of objects) {
      const concerned = concernedLanes(object, request.workspace_id, lanes);
      const own = concerned[0]!;
      assignment[index++] = own;
      if (concerned.length > 1 && concerned.some((lane) => lane !== own))
        for (const lane of concerned) fenced.add(lane);
    }
  }
  const fence = [...fenced].sort((one, other) => one - other);
  if (fence.length > 0) {
    for (let index = 0; index < assignment.length; index++)
      if (fenced.has(assignment[index]!)) assignment[index] = fence[0]!;
  }
  return { lanes: assignment, fence };
}

/** Whether the envelope has no room for another object of this size. */
function isFull({ objects, bytes }: Open, more: number, maxObjects: number): boolean {
  return objects.length >= maxObjects || bytes + more > MAX_ENVELOPE_BYTES;
}
