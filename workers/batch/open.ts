import { validate as isVersionedUuid, v5 as uuidv5 } from 'uuid';
import { fenceSchema, jobs, objectSchemas, requestSchema } from '../../src/jobs/catalog.ts';
import {
  type AcceptedObject,
  type Envelope,
  type EnvelopeRequest,
  type Fence,
  keysOf,
  type ObjectKind,
  requestIndexesOf,
  userIdentifiers,
} from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { NIL_UUID } from '../../src/platform/ids.ts';
import { isDamaged } from '../../src/queue/checksum.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import type { FailedObject } from '../../src/store/failed-objects.ts';
import { type EnvelopeKey, SHARED } from '../../src/store/ledger.ts';
import type { Origin, WorkItem } from './work-item.ts';

const DAMAGED =
  'the job was damaged in Redis: its checksum differs. Check the disk and memory of Redis, and ask the senders to repeat their requests';

const checkRequest = compile<EnvelopeRequest>(requestSchema);
const checkFence = compile<Fence>(fenceSchema);
const checkObject = Object.fromEntries(
  Object.entries(objectSchemas).map(([kind, schema]) => [kind, compile(schema)]),
) as Record<ObjectKind, ReturnType<typeof compile>>;

/** An envelope that was read from a lane. */
export interface Delivery {
  /** Key of its ledger row, a UUID. */
  id: string;
  lane: number;
  /** Number of lanes (LANES) of the worker; 1 by default. */
  lanes?: number;
  envelope: Envelope;
  /** Whether a process died in this lane recently, so that attempts at the envelope are recorded (attempts.ts). */
  isWatched?: boolean;
  /** Workspace whose objects are applied, and the envelope's id (shares.ts); only on a distributed Postgres. */
  share?: { workspaceId: string; of: string };
  /** Workspaces whose objects are applied now; all by default. Objects of other workspaces stay in the lane. */
  only?: ReadonlySet<string>;
}

/** Returns the ledger key of a job: its id, or a UUID derived from it if the job was added by hand. */
export function ledgerKey(jobId: string): string {
  return isVersionedUuid(jobId) ? jobId : uuidv5(jobId, NIL_UUID);
}

/** Returns the fence that a delivery contains; undefined for any other envelope and for a fence of other lanes. */
export function fenceOf({ lane, envelope }: Delivery): Fence | undefined {
  const fence: unknown = envelope?.fence;
  return checkFence(fence) && fence.lanes.includes(lane) ? fence : undefined;
}

/**
 * Returns the workspace that waits at a fence; undefined if all workspaces wait, because the fence names none or its
 * objects belong to others.
 */
export function workspaceOfFence(
  { workspace_id: named, lanes }: Fence,
  { lane, envelope }: Delivery,
): string | undefined {
  if (named === undefined || !isVersionedUuid(named)) return undefined;
  const isNamed = (workspaceId: string) => workspaceId === named;
  return lane !== lanes[0] || [...partsOf(envelope, 0).keys()].every(isNamed) ? named : undefined;
}

/**
 * Unpacks envelopes and validates each object against its schema, in order. An invalid object, or an envelope of
 * unknown format, becomes a dead letter; the valid objects are returned as items.
 */
export function open(deliveries: Delivery[]): Opened {
  const opening: Opening = { items: [], deadLetters: [], replayed: new Set(), lost: new Set() };
  const { items, deadLetters, replayed } = opening;
  for (const delivery of deliveries) {
    const { id, envelope } = delivery;
    const [firstItem, firstDeadLetter] = [items.length, deadLetters.length];
    if (Array.isArray(envelope?.objects) && Array.isArray(envelope.requests)) openOne(opening, delivery);
    else {
      const unknown = { ...unknownRequest, id, object: envelope as unknown as AcceptedObject };
      const reason = isDamaged(envelope) ? DAMAGED : 'the format of the job is unknown to this release';
      lose(opening, toFailed(unknown, reason), { envelope: id, index: 0 });
    }
    if (envelope?.replay)
      noteReplayed(replayed, {
        items: items.slice(firstItem),
        deadLetters: deadLetters.slice(firstDeadLetter),
      });
  }
  return { items, deadLetters, replayed };
}

/** Objects unpacked so far. */
interface Opening extends Opened {
  /** Ids of the dead letters. */
  lost: Set<string>;
}

// These functions are not nested in `open`: V8 would drop the compiled code of a closure that is created for each
// batch, and compile it again.

function lose({ items, deadLetters, lost }: Opening, deadLetter: FailedObject, origin: Origin): void {
  lost.add(deadLetter.id);
  deadLetters.push({ ...deadLetter, index: items.length, origin });
}

function openOne(opening: Opening, delivery: Delivery): void {
  const { items, lost } = opening;
  const { id: envelope, lane, lanes = 1, share } = delivery;
  const { requests, objects } = delivery.envelope;
  const requestIndexes = requestIndexesOf(delivery.envelope);
  const areValid = requests.map(isKnown);
  for (let index = 0; index < objects.length; index++) {
    const object = objects[index]!;
    const requestIndex = requestIndexes[index];
    const request = requestIndex !== undefined && areValid[requestIndex] ? requests[requestIndex] : undefined;
    if (share && share.workspaceId !== ownerOf(request)) continue;
    const reason = findFault(object, request);
    if (reason === undefined) {
      const { workspace_id: workspaceId, request_id: requestId } = request!;
      items.push({ workspaceId, requestId, lane, lanes, ordinal: items.length, envelope, index, object });
      continue;
    }
    const isOwn = isVersionedUuid(object?.id) && !lost.has(object.id);
    const id = isOwn ? object.id : uuidv5(String(index), share?.of ?? envelope);
    const from = request
      ? { workspaceId: request.workspace_id, requestId: request.request_id }
      : unknownRequest;
    lose(opening, toFailed({ ...from, id, object }, reason), { envelope, index });
  }
}

/** Collects the ids of replayed dead letters. Each is replayed in an envelope of its own. */
function noteReplayed(
  replayed: Set<string>,
  ofEnvelope: { items: OpenedItem[]; deadLetters: PositionedDeadLetter[] },
): void {
  for (const { object } of ofEnvelope.items) replayed.add(object.id);
  const [alone, ...more] = ofEnvelope.deadLetters;
  if (alone && more.length === 0 && (alone.object as { id?: unknown } | null)?.id === alone.id)
    replayed.add(alone.id);
}

/**
 * Validates an object.
 *
 * @param request the object's request, if that is valid
 * @returns the reason why the object is invalid, or undefined
 */
function findFault(object: AcceptedObject, request: EnvelopeRequest | undefined): string | undefined {
  if (!request) return 'the object names a request that its envelope does not carry';
  // The object can be null, or a text.
  if (!isVersionedUuid(object?.id)) return "'id' is not valid: it must be a UUID";
  if (!Object.hasOwn(checkObject, object.kind))
    return `no worker of this release knows the kind '${object.kind}'`;
  const check = checkObject[object.kind];
  return check(object) ? undefined : describeError(check.errors![0]!).error;
}

/** Returns the workspace of an object, given its request; NIL_UUID without a valid request. */
function ownerOf(request: EnvelopeRequest | undefined): string {
  return request?.workspace_id ?? unknownRequest.workspaceId;
}

/** Returns the workspace at an index of an object's request; NIL_UUID without a request. */
function ownerAt(owners: string[], requestIndex: number | undefined): string {
  return (requestIndex !== undefined && owners[requestIndex]) || NIL_UUID;
}

/** Returns the workspaces of an envelope's objects; NIL_UUID for an object without a valid request. */
export function ownersOf(envelope: Envelope): Set<string> {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests) || envelope.objects.length === 0)
    return new Set([NIL_UUID]);
  const { requests } = envelope;
  const owners = requests.map((request) => ownerOf(isKnown(request) ? request : undefined));
  return new Set(requestIndexesOf(envelope).map((index) => ownerAt(owners, index)));
}

/** Number of objects, and bytes of JSON text, of one workspace in an envelope. */
export interface PartSize {
  objects: number;
  bytes: number;
}

/**
 * Returns the size of each workspace's part of an envelope. Objects without a valid request belong to NIL_UUID.
 *
 * @param bytes size of the envelope's JSON text, which is divided evenly among its objects
 */
export function partsOf(envelope: Envelope, bytes: number): Map<string, PartSize> {
  const requests: unknown = envelope?.requests;
  const objects: unknown = envelope?.objects;
  const count = Array.isArray(objects) ? objects.length : 0;
  if (!Array.isArray(requests)) return new Map([[NIL_UUID, { objects: count, bytes }]]);
  const owner: unknown = requests[0]?.workspace_id;
  // Nearly all envelopes contain a single workspace. The markers of a move have no objects, and
  // count as empty parts of their workspace, so that they keep their place among its objects.
  if (isVersionedUuid(owner) && requests.every((request) => request?.workspace_id === owner))
    return new Map([[owner as string, { objects: count, bytes }]]);
  if (count === 0) return new Map([[NIL_UUID, { objects: count, bytes }]]);
  const parts = new Map<string, PartSize>();
  const owners = requests.map((request) => ownerOf(isKnown(request) ? request : undefined));
  for (const index of requestIndexesOf(envelope)) {
    const its = ownerAt(owners, index);
    const part = parts.get(its) ?? { objects: 0, bytes: 0 };
    part.objects++;
    part.bytes += bytes / count;
    parts.set(its, part);
  }
  return parts;
}

function isKnown(request: EnvelopeRequest | undefined): request is EnvelopeRequest {
  return checkRequest(request) && isVersionedUuid(request.workspace_id);
}

const unknownRequest = { workspaceId: NIL_UUID, requestId: 'unknown' };

/** Creates the dead letter of an object. */
export function toFailed(
  {
    id,
    workspaceId,
    requestId,
    object,
  }: { id: string; workspaceId: string; requestId: string; object: AcceptedObject },
  reason: string,
): FailedObject {
  return {
    id,
    workspaceId,
    requestId,
    kind: object?.kind ?? 'envelope',
    jobName: jobs.envelope,
    identifiers: userIdentifiers(object),
    object: object ?? null,
    reason,
  };
}

/** Dead letter of an invalid object; `index` is the number of valid objects of the batch before it. */
type PositionedDeadLetter = FailedObject & { index: number; origin: Origin };

/** An object that came in an envelope. */
export type OpenedItem = WorkItem & Origin;

/** The objects of a batch. */
export interface Opened {
  items: OpenedItem[];
  deadLetters: PositionedDeadLetter[];
  /** Ids of the objects that are replayed dead letters. */
  replayed: Set<string>;
}

/**
 * Splits a batch after a delete if dead letters or replays follow it. A delete removes the dead letters of objects that
 * were accepted before it, and a later replay of such a dead letter has no effect. Most batches are a single stretch.
 */
export function cutAtDeletes(opened: Opened): Opened[] {
  const { items, deadLetters, replayed } = opened;
  if (deadLetters.length === 0 && replayed.size === 0) return [opened];
  const deadLetterAt = new Set(deadLetters.map(({ index }) => index));
  const cuts = [0];
  let deleted = false;
  for (let index = 0; index <= items.length; index++) {
    const item = items[index];
    if (deleted && (deadLetterAt.has(index) || (item && replayed.has(item.object.id)))) {
      cuts.push(index);
      deleted = false;
    }
    if (item?.object.kind === 'delete') deleted = true;
  }
  return cuts.map((from, index) => {
    const to = cuts[index + 1] ?? Number.POSITIVE_INFINITY;
    return {
      items: items.slice(from, to),
      deadLetters: deadLetters.filter(({ index }) => index >= from && index < to),
      replayed,
    };
  });
}

/** Encodes the traces that the ledger keeps of an envelope, or of one workspace's share of it. */
export function tracesOf({ envelope, share }: Delivery): Buffer | undefined {
  if (!share || ownersOf(envelope).size <= 1) return encodeTraces(envelope);
  return encodeTraces(onlyOf(envelope, share.workspaceId));
}

function onlyOf(envelope: Envelope, workspaceId: string): Envelope {
  const requestIndexes = requestIndexesOf(envelope);
  const keys = keysOf(envelope.requests);
  const own = envelope.requests
    .map((request, index) => ({ request, index, key_id: keys[index] ?? null }))
    .filter(({ request }) => (request?.workspace_id ?? NIL_UUID) === workspaceId);
  return {
    requests: own.map(({ request, key_id }) => ({ ...request, key_id })),
    objects: own.flatMap(({ index: requestIndex }) =>
      envelope.objects.filter((_, index) => requestIndexes[index] === requestIndex),
    ),
  };
}

/** Claimed envelopes, and the objects that earlier parts have left in them. */
export interface Claimed {
  mine: Delivery[];
  /** Places of the remaining objects, by envelope id; absent for an envelope that was never cut. */
  left: ReadonlyMap<string, ReadonlySet<number>>;
  now: string;
  /** Workspaces that have a stream destination. */
  streamed: ReadonlySet<string>;
}

/** Returns the ledger key of an envelope: under its workspace, or under SHARED if it has several. */
export function keyOf({ id, envelope, share }: Delivery): EnvelopeKey {
  if (share) return { id, workspaceId: share.workspaceId };
  const requests: (EnvelopeRequest | undefined)[] = Array.isArray(envelope?.requests)
    ? envelope.requests
    : [];
  const workspaceId = requests[0]?.workspace_id;
  for (const request of requests)
    if (request?.workspace_id !== workspaceId) return { id, workspaceId: SHARED };
  return { id, workspaceId: isVersionedUuid(workspaceId) ? workspaceId! : SHARED };
}

const workspaceOf = (request: EnvelopeRequest): string => request?.workspace_id;

export function workspacesOf({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map(workspaceOf) : [];
}
