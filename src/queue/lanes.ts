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
  /**
   * Lanes are those of one shard, counted from 0: each workspace's envelopes go to its own shard.
   * @throws {QueueUnavailable} when it is not known that every entry is stored.
   */
  add(entries: LaneEntry[]): Promise<void>;
  /** For whoever gathers envelopes by shard; absent: there is one shard. */
  placing?: Placing;
}

/** Knows the shards of workspaces, which may move (src/queue/placing.ts). */
export interface Placing {
  /** The shard of a workspace; undefined: it is not known here, or moves at this moment. */
  now(workspaceId: string): number | undefined;
  /** The same, as soon as it is known. @throws {QueueUnavailable} */
  settled(workspaceId: string): Promise<number>;
  /** Resolves when the moves from a shard are known as they were a moment ago; undefined: they are. @throws {QueueUnavailable} */
  fresh(shard: number): Promise<void> | undefined;
  /**
   * Adds to the lanes of a shard, counted from 0, what is known to belong there. All or none.
   * @returns workspaces that have moved meanwhile: theirs is not accepted, and may take effect all the same
   * @throws {QueueUnavailable}
   */
  addTo(shard: number, entries: LaneEntry[]): Promise<ReadonlySet<string>>;
}

/** The queue did not confirm that it stored what it was given. */
export class QueueUnavailable extends Error {
  override name = 'QueueUnavailable';
}
