import { newId } from '../ids.ts';
import type { AcceptedObject, Envelope, EnvelopeRequest } from '../jobs/envelope.ts';
import { namedIdentifiers } from '../jobs/named-identifiers.ts';
import { identifierKey, type LaneEntry, laneOf } from './lanes.ts';

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

/** Packs requests into as few envelopes as possible, in their order within each lane. */
export function pack(batch: Packable[], lanes: number, maxObjects: number): LaneEntry[] {
  const entries: LaneEntry[] = [];
  const open = new Map<number, Open>();
  for (const { request, objects, bytes } of batch) {
    const share = bytes / objects.length;
    for (const object of objects) {
      const lane = laneOf(request.workspace_id, placeOf(object), lanes);
      let current = open.get(lane);
      if (!current || isFull(current, share, maxObjects)) {
        current = { envelope: { requests: [], objects: [] }, request: undefined, bytes: 0 };
        open.set(lane, current);
        entries.push({ lane, id: newId(), envelope: current.envelope });
      }
      if (current.request !== request) {
        current.envelope.requests.push(request);
        current.request = request;
      }
      object.request = current.envelope.requests.length - 1;
      current.envelope.objects.push(object);
      current.bytes += share;
    }
  }
  return entries;
}

/** Whether an object of so many bytes needs an envelope of its own; no envelope is opened for nothing. */
function isFull({ envelope, bytes }: Open, more: number, maxObjects: number): boolean {
  return envelope.objects.length >= maxObjects || bytes + more > MAX_ENVELOPE_BYTES;
}

function placeOf(object: AcceptedObject): string {
  const [identifier] = namedIdentifiers(object);
  return identifier ? identifierKey(identifier) : object.id;
}
