import { v5 as uuidv5 } from 'uuid';
import {
  type AcceptedObject,
  type AcceptedRequest,
  type Envelope,
  type EnvelopeRequest,
  type Fence,
  namedIdentifiers,
} from '../jobs/envelope.ts';
import type { PackedEnvelope } from '../store/idempotency-keys.ts';
import { envelopeId, homeLane, identifierKey, type LaneEntry, laneOf, tagIn, withTag } from './lanes.ts';

/**
 * Lists the lanes in which an object must keep its order. A lane can occur several times. An object with several lanes
 * must be in a fence, whose lanes `fenceLanes` returns. A delete concerns all lanes, because earlier operations on its
 * user may have used identifiers that the delete does not contain.
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
 * mark without objects in each other lane. Each entry names the workspace of the objects, so that other workspaces
 * need not wait.
 * @param id of the envelope, a UUID; `markOfFence` derives the ids of the marks from it
 * @param lanes from `fenceLanes`
 * @param envelope with objects of one workspace
 */
export function fenceEntries(id: string, lanes: number[], envelope: Envelope): LaneEntry[] {
  const fence: Fence = { id, lanes, workspace_id: envelope.requests[0]!.workspace_id };
  return lanes.map((lane, index) =>
    index === 0
      ? { lane, id, envelope: { ...envelope, fence } }
      : { lane, id: markOfFence(id, lane), envelope: { requests: [], objects: [], fence } },
  );
}

/**
 * Returns the lanes of a fence for objects of these lanes: the home lane of the workspace, which carries the objects, and
 * the others in ascending order.
 */
export function fenceLanes(concerned: Iterable<number>, workspaceId: string, lanes: number): number[] {
  const home = homeLane(workspaceId, lanes);
  const others = [...new Set(concerned)].filter((lane) => lane !== home);
  return [home, ...others.sort((one, other) => one - other)];
}

/**
 * Returns the id of the mark of a fence in a lane. It has the tag of the fence, if the fence has one.
 * @param lane counted from 0 in the shard of the fence
 */
export function markOfFence(fenceId: string, lane: number): string {
  const id = uuidv5(String(lane), fenceId);
  const tag = tagIn(fenceId);
  return tag === undefined ? id : withTag(id, tag);
}

/** The accepted objects of one request, and the approximate bytes of their JSON text. */
export interface Packable {
  request: AcceptedRequest;
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
  requests: EnvelopeRequest[];
  /** The API key of the last request in it. */
  key: string | null | undefined;
  objects: AcceptedObject[];
  bytes: number;
  /** Lanes of the fence; undefined if the envelope is not a fence. */
  fence: readonly number[] | undefined;
}

/** The lane of each object of a batch, in the order of the batch. */
interface LaneAssignment {
  lanes: Uint8Array;
  /**
   * Lanes of the fence of each workspace that has objects with identifiers in several lanes, the lane of the objects
   * first.
   */
  fences: ReadonlyMap<string, readonly number[]>;
}

/**
 * Packs requests into as few envelopes as possible and keeps the order of each workspace within each lane. If some
 * object has identifiers in several lanes, all objects of its workspace in these lanes share fences over all of them, so
 * that they keep their order too. A fence has objects of one workspace.
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
    const fence = assignment?.fences.get(request.workspace_id);
    const share = bytes / objects.length;
    const parts = new Map<Open, EnvelopeRequest>();
    let envelope: Open | undefined;
    let part: EnvelopeRequest | undefined;
    for (const object of objects) {
      const lane = assignment ? assignment.lanes[index++]! : 0;
      if (envelope?.lane !== lane || isFull(envelope, share, maxObjects)) {
        const isFenced = fence?.[0] === lane;
        const whose = apart || isFenced ? own(lane) + suffix : lane;
        envelope = open.get(whose);
        if (!envelope || isFull(envelope, share, maxObjects)) {
          envelope = {
            ...{ lane, requests: [], key: undefined, objects: [], bytes: 0 },
            fence: isFenced ? fence : undefined,
          };
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
  return filled.flatMap(({ lane, requests, objects, fence }) => {
    const envelope: Envelope = { requests, objects };
    const id = envelopeId(requests.map(ownerOf));
    return fence ? fenceEntries(id, [...fence], envelope) : [{ lane, id, envelope }];
  });
}

const ownerOf = ({ workspace_id }: AcceptedRequest): string => workspace_id;

/** Copies member by member for speed: each request has a part, and most requests have one object. */
function partOf(
  { request_id, workspace_id, accepted_at, objects, traceparent }: AcceptedRequest,
  key_id: string | null | undefined,
): EnvelopeRequest {
  const part: EnvelopeRequest = {
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
export function envelopesOf({ request_id }: AcceptedRequest, entries: LaneEntry[]): string[] {
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

/** Assigns each object its own lane. Objects of a workspace in the lanes of its fence get the first of these lanes. */
function assignLanes(batch: readonly Packable[], lanes: number): LaneAssignment {
  const assignment = new Uint8Array(batch.reduce((sum, { objects }) => sum + objects.length, 0));
  const fenced = new Map<string, Set<number>>();
  let index = 0;
  for (const { request, objects } of batch) {
    for (const object of objects) {
      const concerned = concernedLanes(object, request.workspace_id, lanes);
      const own = concerned[0]!;
      assignment[index++] = own;
      if (concerned.length === 1 || concerned.every((lane) => lane === own)) continue;
      const connected = fenced.get(request.workspace_id) ?? new Set();
      fenced.set(request.workspace_id, connected);
      for (const lane of concerned) connected.add(lane);
    }
  }
  const fences = new Map(
    [...fenced].map(([workspaceId, its]) => [workspaceId, fenceLanes(its, workspaceId, lanes)]),
  );
  index = 0;
  for (const { request, objects } of batch) {
    const fence = fences.get(request.workspace_id);
    for (let count = 0; count < objects.length; count++, index++)
      if (fence?.includes(assignment[index]!)) assignment[index] = fence[0]!;
  }
  return { lanes: assignment, fences };
}

/** Whether the envelope has no room for another object of this size. */
function isFull({ objects, bytes }: Open, more: number, maxObjects: number): boolean {
  return objects.length >= maxObjects || bytes + more > MAX_ENVELOPE_BYTES;
}
