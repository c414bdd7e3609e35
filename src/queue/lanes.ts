import { crc32 } from 'node:zlib';
import type { Envelope } from '../jobs/envelope.ts';
import type { Config } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import type { Identifier } from '../profile/identifier.ts';

/** A lane is a queue of which one job at a time is in work over the whole fleet: what it holds takes effect first in, first out. */
export function laneName(lane: number): string {
  return `lane-${lane}`;
}

/** Jobs that wait in each lane from which on the workers count as behind. */
export const BEHIND = 3;

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

/** Knows the shards of workspaces, which may move (src/queue/producer.ts). */
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
  /** Name of the limit that was reached; absent if the queue did not answer. */
  readonly limit: string | undefined;

  constructor(message: string, { limit, cause }: { limit?: string; cause?: unknown } = {}) {
    super(message, cause === undefined ? {} : { cause });
    this.limit = limit;
  }
}

/**
 * A shard is a set of lanes that share one hash tag, and so one slot of a Redis Cluster. A workspace has one shard, so
 * that each atomic add stays within it. Lanes are numbered through: those of shard 1 follow those of shard 0. With more
 * shards no lane gets another number.
 */
export interface Layout {
  shards: number;
  /** Of each shard. */
  lanes: number;
}

export type LayoutSettings = Pick<Config, 'LANES'> & Partial<Pick<Config, 'SHARDS'>>;

export const layoutOf = ({ LANES, SHARDS = 1 }: LayoutSettings): Layout => ({ shards: SHARDS, lanes: LANES });

/** Lanes of all shards. */
export const laneCount = (settings: LayoutSettings): number => settings.LANES * (settings.SHARDS ?? 1);

/** The shard of a lane, by the lane's number among all. */
export const shardOfLane = ({ shards, lanes }: Layout, lane: number): number =>
  shards === 1 ? 0 : Math.floor(lane / lanes);

/** How people are told of a lane. */
export const laneTitle = (layout: Layout, lane: number): string =>
  layout.shards === 1 ? String(lane) : `${lane} (shard ${shardOfLane(layout, lane)})`;

/**
 * What the keys of a shard begin with. The first has the tag that an installation without shards has. The others have
 * tags whose slots are far apart: three primaries have 6, 5 and 5 of 16 shards, four have 4 each.
 */
export const prefixOf = (shard: number): string => (shard === 0 ? '{penstock}' : `{penstock_${shard}}`);

/** Of no meaning for what it holds: asked for where a shard is, it tells whether that server answers. */
export const markOf = (shard: number): string => `${prefixOf(shard)}:mark`;

/** The numbers of all shards, in their order. */
export const everyShard = (shards: number): number[] => Array.from({ length: shards }, (_, shard) => shard);

/** The numbers of so many lanes, in their order. */
export const everyLane = (lanes: number): number[] => Array.from({ length: lanes }, (_, lane) => lane);

/** Where the version of a UUID stands in its text, and where its last four digits begin. */
const VERSION = 14;
const TAG = 32;

/** Of an envelope that holds objects of several workspaces. */
export const SHARED = '0000';

/**
 * An id for an envelope that tells whose it is: a UUIDv8 (RFC 9562, 5.8). It begins as `newId` does, so that ids of one
 * process are in the order in which they were made. It ends with a tag of the workspace. So a worker sees from the ids
 * of a lane alone what may take effect before what (workers/lane/next-batch.ts). 40 random bits tell processes apart.
 *
 * @param workspaceIds of all of its requests
 */
export function envelopeId(workspaceIds: Iterable<string>): string {
  const [owner, ...others] = new Set(workspaceIds);
  const tag = owner === undefined || others.length > 0 ? SHARED : tagOf(owner);
  const id = newId();
  return `${id.slice(0, VERSION)}8${id.slice(VERSION + 1, TAG)}${tag}`;
}

/** Four hexadecimal digits, never those of `SHARED`. Two workspaces may have the same, and then wait for each other. */
export function tagOf(workspaceId: string): string {
  return ((crc32(workspaceId) % 65_535) + 1).toString(16).padStart(4, '0');
}

/** The tag of an envelope's id; undefined where the id tells nothing: that of a fence, a replay or an earlier release. */
export function tagIn(id: string): string | undefined {
  return id.length === TAG + 4 && id[VERSION] === '8' ? id.slice(TAG) : undefined;
}
