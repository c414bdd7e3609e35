import { validate as isVersionedUuid, NIL, v5 as uuidv5 } from 'uuid';
import { fenceSchema, jobs, objectSchemas, requestSchema } from '../../src/jobs/catalog.ts';
import {
  type AcceptedObject,
  type Envelope,
  type EnvelopeRequest,
  type Fence,
  namedIdentifiers,
  type ObjectKind,
  requestPlaces,
} from '../../src/jobs/envelope.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import { identifierText } from '../../src/store/dead-letters.ts';
import type { FailedObject } from '../../src/store/failed-objects.ts';
import type { Origin, WorkItem } from './work-item.ts';

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
  /** Only what this workspace has in it, on a distributed Postgres (workers/batch/by-workspace.ts); absent: all of it. */
  share?: { workspaceId: string; of: string };
}

/** The ledger key of a job: its id, or, for a job that somebody added by hand, a UUID made from it. */
export function ledgerKey(jobId: string): string {
  return isVersionedUuid(jobId) ? jobId : uuidv5(jobId, NIL);
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
      const reason = 'the job is no envelope that this release knows';
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
  return check(object) ? undefined : describeError(check.errors![0]!);
}

/** Whose an object is; of one that nobody knows the request of, NIL. */
function ownerOf(request: EnvelopeRequest | undefined): string {
  return request?.workspace_id ?? unknownRequest.workspaceId;
}

/** Whose the objects of an envelope are, as they are opened; of what is none, NIL. */
export function ownersOf(envelope: Envelope): Set<string> {
  if (!Array.isArray(envelope?.objects) || !Array.isArray(envelope.requests) || envelope.objects.length === 0)
    return new Set([NIL]);
  const { requests } = envelope;
  const owners = requests.map((request) => ownerOf(isKnown(request) ? request : undefined));
  // It may name anything: `length` is no place.
  const isPlace = (place: unknown) => typeof place === 'number';
  return new Set(requestPlaces(envelope).map((place) => (isPlace(place) && owners[place as number]) || NIL));
}

function isKnown(request: EnvelopeRequest | undefined): request is EnvelopeRequest {
  return checkRequest(request) && isVersionedUuid(request.workspace_id);
}

const unknownRequest = { workspaceId: NIL, requestId: 'unknown' };

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
