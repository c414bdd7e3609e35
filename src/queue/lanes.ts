import { crc32 } from 'node:zlib';
import type { Envelope } from '../jobs/envelope.ts';
import type { Identifier } from '../profile/identifier.ts';

/** A lane is a queue of which one job at a time is in work over the whole fleet: what it holds takes effect first in, first out. */
export function laneName(lane: number): string {
  return `lane-${lane}`;
}

/** The queue in which the dashboard shows the dead letters; a retry there replays one. */
export const DEAD_LETTER_QUEUE = 'dead-letters';

/** Two operations of one workspace on one identifier meet in one lane. */
export function laneOf(workspaceId: string, identifier: string, lanes: number): number {
  return lanes === 1 ? 0 : crc32(`${workspaceId}\0${identifier}`) % lanes;
}

/** One string per identifier, for hashing and for maps. */
export function identifierKey(identifier: Identifier): string {
  if ('external_id' in identifier) return `x:${identifier.external_id}`;
  if ('user_alias' in identifier)
    return `a:${identifier.user_alias.alias_label}\0${identifier.user_alias.alias_name}`;
  if ('service_id' in identifier) return `s:${identifier.service_id}`;
  if ('email' in identifier) return `e:${identifier.email}`;
  return `p:${identifier.phone}`;
}

/** One envelope on its way into one lane. `id` is a UUID: the job's id and the key of its ledger row. */
export interface LaneEntry {
  lane: number;
  id: string;
  envelope: Envelope;
}

/** Puts envelopes into lanes: all of them or none, on disk when the promise resolves. */
export interface LaneProducer {
  /** @throws {QueueUnavailable} when it is not known that every entry is stored. */
  add(entries: LaneEntry[]): Promise<void>;
}

/** The queue did not confirm that it stored what it was given. */
export class QueueUnavailable extends Error {
  override name = 'QueueUnavailable';
}
