import { validate as isVersionedUuid, v5 as uuidv5 } from 'uuid';
import { fenceSchema, jobs, objectSchemas, requestSchema } from '../../src/jobs/catalog.ts';
import {
  type AcceptedObject,
  type Envelope,
  type EnvelopeRequest,
  type Fence,
  keysOf,
  namedIdentifiers,
  type ObjectKind,
  requestPlaces,
} from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { NIL_UUID } from '../../src/platform/ids.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { isDamaged } from '../../src/queue/checksum.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import { identifierText } from '../../src/store/dead-letters.ts';
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

/** An envelope as it came out of a lane. */
export interface Delivery {
  /** A UUID: the key of its ledger row. */
  id: string;
  lane: number;
  /** LANES of who delivers it; absent: one. */
  lanes?: number;
  envelope: Envelope;
  /** A process ended in this lane lately: attempts at the envelope are recorded (attempts.ts). */
  isWatched?: boolean;
  /** Only what this workspace has in it, on a distributed Postgres (workers/batch/shares.ts); absent: all of it. */
  share?: { workspaceId: string; of: string };
  /** Workspaces whose objects are applied now; absent: all. The objects of the others stay in the lane. */
  only?: ReadonlySet<string>;
}

/** The ledger key of a job: its id, or, for a job that somebody added by hand, a UUID made from it. */
export function ledgerKey(jobId: string): string {
  return isVersionedUuid(jobId) ? jobId : uuidv5(jobId, NIL_UUID);
}

/** The fence that the lane has come to; undefined for every other envelope, and for what is no fence of this lane. */
export function fenceOf({ lane, envelope }: Delivery): Fence | undefined {
  const fence: unknown = envelope?.fence;
  return checkFence(fence) && fence.lanes.includes(lane) ? fence : undefined;
}

/**
 * Opens envelopes and holds each object against its contract, in their order. What does not fit becomes a dead letter,
 * whatever it is; the rest goes on.
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
      lose(opening, toFailed(unknown, reason), { envelope: id, place: 0 });
    }
    if (envelope?.replay)
      noteReplayed(replayed, {
        items: items.slice(firstItem),
        deadLetters: deadLetters.slice(firstDeadLetter),
      });
  }
  return { items, deadLetters, replayed };
}

/** What is opened so far. */
interface Opening extends Opened {
  /** Ids of the dead letters. */
  lost: Set<string>;
}

// Functions of the module, and none of `open`: V8 forgets what it has compiled of a function that is made anew for each
// batch, and compiles it again.

function lose({ items, deadLetters, lost }: Opening, deadLetter: FailedObject, origin: Origin): void {
  lost.add(deadLetter.id);
  deadLetters.push({ ...deadLetter, place: items.length, origin });
}

function openOne(opening: Opening, delivery: Delivery): void {
  const { items, lost } = opening;
  const { id: envelope, lane, lanes = 1, share } = delivery;
  const { requests, objects } = delivery.envelope;
  const places = requestPlaces(delivery.envelope);
  const known = requests.map(isKnown);
  for (let place = 0; place < objects.length; place++) {
    const object = objects[place]!;
    const named = places[place] as number;
    // It may name anything: `length` is no place.
    const request = known[named] === true ? requests[named] : undefined;
    if (share && share.workspaceId !== ownerOf(request)) continue;
    const reason = findFault(object, request);
    if (reason === undefined) {
      const { workspace_id: workspaceId, request_id: requestId } = request!;
      items.push({ workspaceId, requestId, lane, lanes, ordinal: items.length, envelope, place, object });
      continue;
    }
    const isOwn = isVersionedUuid(object?.id) && !lost.has(object.id);
    const id = isOwn ? object.id : uuidv5(String(place), share?.of ?? envelope);
    const from = request
      ? { workspaceId: request.workspace_id, requestId: request.request_id }
      : unknownRequest;
    lose(opening, toFailed({ ...from, id, object }, reason), { envelope, place });
  }
}

/** Each dead letter is replayed in an envelope of its own. What else may be in one was never a dead letter. */
function noteReplayed(
  replayed: Set<string>,
  ofEnvelope: { items: OpenedItem[]; deadLetters: PlacedDeadLetter[] },
): void {
  for (const { object } of ofEnvelope.items) replayed.add(object.id);
  const [alone, ...more] = ofEnvelope.deadLetters;
  if (alone && more.length === 0 && (alone.object as { id?: unknown } | null)?.id === alone.id)
    replayed.add(alone.id);
}

/**
 * Undefined: the object is as its contract says.
 *
 * @param request its own, if that is as its contract says
 */
function findFault(object: AcceptedObject, request: EnvelopeRequest | undefined): string | undefined {
  if (!request) return 'the object names a request that its envelope does not carry';
  if (!isVersionedUuid(object.id)) return "'id' is not valid: it must be a UUID";
  if (!Object.hasOwn(checkObject, object.kind))
    return `no worker of this release knows the kind '${object.kind}'`;
  const check = checkObject[object.kind];
  return check(object) ? undefined : describeError(check.errors![0]!).error;
}

/** Whose an object is; of one that nobody knows the request of, NIL_UUID. */
function ownerOf(request: EnvelopeRequest | undefined): string {
  return request?.workspace_id ?? unknownRequest.workspaceId;
}

/** Whose the objects of an envelope are, as they are opened; of what is none, NIL_UUID. */
export function ownersOf(envelope: Envelope): Set<string> {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests) || envelope.objects.length === 0)
    return new Set([NIL_UUID]);
  const { requests } = envelope;
  const owners = requests.map((request) => ownerOf(isKnown(request) ? request : undefined));
  // It may name anything: `length` is no place.
  const isPlace = (place: unknown) => typeof place === 'number';
  return new Set(
    requestPlaces(envelope).map((place) => (isPlace(place) && owners[place as number]) || NIL_UUID),
  );
}

/** Objects and bytes of JSON text that one workspace has in an envelope. */
export interface PartSize {
  objects: number;
  bytes: number;
}

/**
 * Returns what each workspace has in an envelope. Objects of a request that nobody knows belong to NIL_UUID.
 *
 * @param bytes of the text of the envelope, which are shared over its objects
 */
export function partsOf(envelope: Envelope, bytes: number): Map<string, PartSize> {
  const requests: unknown = envelope?.requests;
  const objects: unknown = envelope?.objects;
  const count = Array.isArray(objects) ? objects.length : 0;
  if (count === 0 || !Array.isArray(requests)) return new Map([[NIL_UUID, { objects: count, bytes }]]);
  const owner: unknown = requests[0]?.workspace_id;
  // Nearly all envelopes are of one workspace.
  if (isVersionedUuid(owner) && requests.every((request) => request?.workspace_id === owner))
    return new Map([[owner as string, { objects: count, bytes }]]);
  const parts = new Map<string, PartSize>();
  const owners = requests.map((request) => ownerOf(isKnown(request) ? request : undefined));
  for (const place of requestPlaces(envelope)) {
    // It may name anything: `length` is no place.
    const its = (typeof place === 'number' && owners[place]) || NIL_UUID;
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

/** A dead letter for an object. */
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
    identifiers: identifiersOf(object),
    object: object ?? null,
    reason,
  };
}

/**
 * Whom an object is about, as far as it can be read: it may be here because it breaks its contract. An address that
 * an attribute object sets is no such name: whoever has that address may be somebody else.
 */
function identifiersOf(object: AcceptedObject): Identifier[] {
  try {
    const named = object.kind === 'attributes' ? [object.identifier!] : namedIdentifiers(object);
    for (const identifier of named) identifierText(identifier);
    return named;
  } catch {
    return [];
  }
}

/** A dead letter of what does not fit its contract, and how many objects that do came before it. */
type PlacedDeadLetter = FailedObject & { place: number; origin: Origin };

/** An object that came in an envelope. */
export type OpenedItem = WorkItem & Origin;

/** The objects of a batch. */
export interface Opened {
  items: OpenedItem[];
  deadLetters: PlacedDeadLetter[];
  /** Ids of those that are dead letters which are tried again. */
  replayed: Set<string>;
}

/**
 * Cuts a batch where a delete decides what becomes of dead letters that follow. It takes away those that were accepted
 * before it, and a replay of one of them that follows has no effect. Most batches are one stretch.
 */
export function cutAtDeletes(opened: Opened): Opened[] {
  const { items, deadLetters, replayed } = opened;
  if (deadLetters.length === 0 && replayed.size === 0) return [opened];
  const deadLetterAt = new Set(deadLetters.map(({ place }) => place));
  const cuts = [0];
  let deleted = false;
  for (let place = 0; place <= items.length; place++) {
    const item = items[place];
    if (deleted && (deadLetterAt.has(place) || (item && replayed.has(item.object.id)))) {
      cuts.push(place);
      deleted = false;
    }
    if (item?.object.kind === 'delete') deleted = true;
  }
  return cuts.map((from, index) => {
    const to = cuts[index + 1] ?? Number.POSITIVE_INFINITY;
    return {
      items: items.slice(from, to),
      deadLetters: deadLetters.filter(({ place }) => place >= from && place < to),
      replayed,
    };
  });
}

/** What the ledger keeps of an envelope, or of a share of one. */
export function tracesOf({ envelope, share }: Delivery): Buffer | undefined {
  if (!share || ownersOf(envelope).size <= 1) return encodeTraces(envelope);
  return encodeTraces(onlyOf(envelope, share.workspaceId));
}

function onlyOf(envelope: Envelope, workspaceId: string): Envelope {
  const places = requestPlaces(envelope);
  const keys = keysOf(envelope.requests);
  const own = envelope.requests
    .map((request, place) => ({ request, place, key_id: keys[place] ?? null }))
    .filter(({ request }) => (request?.workspace_id ?? NIL_UUID) === workspaceId);
  return {
    requests: own.map(({ request, key_id }) => ({ ...request, key_id })),
    objects: own.flatMap(({ place }) => envelope.objects.filter((_, index) => places[index] === place)),
  };
}

/** Envelopes that are claimed, and what earlier parts have left of them. */
export interface Claimed {
  mine: Delivery[];
  /** Places of objects, by the envelope's id; one that was never cut is missing. */
  left: ReadonlyMap<string, ReadonlySet<number>>;
  now: string;
  /** Workspaces that have a destination of streams. */
  streamed: ReadonlySet<string>;
}

/** Whose row of the ledger an envelope has: that of its one workspace, or everybody's. */
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
