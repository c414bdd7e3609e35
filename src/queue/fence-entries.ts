import { v5 as uuidv5 } from 'uuid';
import type { AcceptedObject, Envelope } from '../jobs/envelope.ts';
import { namedIdentifiers } from '../jobs/named-identifiers.ts';
import { identifierKey, type LaneEntry, laneOf } from './lanes.ts';

/**
 * The lanes that an object is ordered with, the one that it belongs to first. A delete concerns all of them: it
 * reaches whatever was done to its user, also by an identifier that the object does not name.
 * @throws when the object is not as its contract says
 */
export function concernedLanes(object: AcceptedObject, workspaceId: string, lanes: number): number[] {
  if (object.kind === 'delete') return Array.from({ length: lanes }, (_, lane) => lane);
  const identifiers = namedIdentifiers(object);
  // What names nobody meets no other operation: its id only spreads it.
  if (identifiers.length === 0) return [laneOf(workspaceId, object.id, lanes)];
  return identifiers.map((identifier) => laneOf(workspaceId, identifierKey(identifier), lanes));
}

/**
 * One envelope that stands in several lanes: whole in the first, as a mark in the others.
 * @param id of the envelope, a UUID; those of the marks follow from it
 * @param lanes ascending, two at least
 */
export function fenceEntries(id: string, lanes: number[], envelope: Envelope): LaneEntry[] {
  const fence = { id, lanes };
  envelope.fence = fence;
  return lanes.map((lane, place) =>
    place === 0
      ? { lane, id, envelope }
      : { lane, id: uuidv5(String(lane), id), envelope: { requests: [], objects: [], fence } },
  );
}
