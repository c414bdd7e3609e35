import { newId } from '../ids.ts';
import type { AcceptedObject, Envelope, EnvelopeRequest } from '../jobs/envelope.ts';
import { concernedLanes, fenceEntries } from './fence-entries.ts';
import type { LaneEntry } from './lanes.ts';

/** The accepted objects of one request, and the bytes of their JSON text, about. */
export interface Packable {
  request: EnvelopeRequest;
  objects: AcceptedObject[];
  bytes: number;
}

/** Most bytes in one envelope, unless one object has more: bounds what a worker takes in hand at once. */
export const MAX_ENVELOPE_BYTES = 4_194_304;

/** The envelope of a lane that is being filled. */
interface Open {
  envelope: Envelope;
  request: EnvelopeRequest | undefined;
  bytes: number;
}

/** Where each object of a batch goes, in the batch's order. */
interface Places {
  lanes: Uint8Array;
  /** Lanes that some object of the batch is ordered with together, ascending; empty: no object needs two. */
  fence: number[];
}

/**
 * Packs requests into as few envelopes as possible, in their order within each lane. Objects of the lanes that meet
 * in some object share fences over all of these lanes, so that they too keep their order.
 */
export function pack(batch: Packable[], lanes: number, maxObjects: number): LaneEntry[] {
  const entries: LaneEntry[] = [];
  const open = new Map<number, Open>();
  const places = lanes === 1 ? undefined : placeAll(batch, lanes);
  let place = 0;
  for (const { request, objects, bytes } of batch) {
    const share = bytes / objects.length;
    let parts = 0;
    for (const object of objects) {
      const lane = places ? places.lanes[place++]! : 0;
      let current = open.get(lane);
      if (!current || isFull(current, share, maxObjects)) {
        current = { envelope: { requests: [], objects: [] }, request: undefined, bytes: 0 };
        open.set(lane, current);
        const id = newId();
        if (places && places.fence[0] === lane)
          entries.push(...fenceEntries(id, places.fence, current.envelope));
        else entries.push({ lane, id, envelope: current.envelope });
      }
      if (current.request !== request) {
        current.envelope.requests.push(request);
        current.request = request;
        // The first part holds the same request, so that every one of them says it.
        if (++parts === 2) request.objects = objects.length;
      }
      object.request = current.envelope.requests.length - 1;
      current.envelope.objects.push(object);
      current.bytes += share;
    }
  }
  return entries;
}

/**
 * The ids of the envelopes that hold objects of a request, which are the keys of their ledger rows.
 * @param request the very one that was packed
 */
export function envelopesOf(request: EnvelopeRequest, entries: LaneEntry[]): string[] {
  return entries.filter(({ envelope }) => envelope.requests.includes(request)).map(({ id }) => id);
}

/** Each object into its own lane; those of lanes that meet, into the first of these. */
function placeAll(batch: Packable[], lanes: number): Places {
  const places = new Uint8Array(batch.reduce((sum, { objects }) => sum + objects.length, 0));
  const fenced = new Set<number>();
  let place = 0;
  for (const { request, objects } of batch) {
    for (const object of objects) {
      const concerned = concernedLanes(object, request.workspace_id, lanes);
      const own = concerned[0]!;
      places[place++] = own;
      if (concerned.length > 1 && concerned.some((lane) => lane !== own))
        for (const lane of concerned) fenced.add(lane);
    }
  }
  const fence = [...fenced].sort((one, other) => one - other);
  if (fence.length > 0) {
    for (let index = 0; index < places.length; index++)
      if (fenced.has(places[index]!)) places[index] = fence[0]!;
  }
  return { lanes: places, fence };
}

/** Whether an object of so many bytes needs an envelope of its own; no envelope is opened for nothing. */
function isFull({ envelope, bytes }: Open, more: number, maxObjects: number): boolean {
  return envelope.objects.length >= maxObjects || bytes + more > MAX_ENVELOPE_BYTES;
}
