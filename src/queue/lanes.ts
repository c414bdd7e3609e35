import { crc32 } from 'node:zlib';
import type { Envelope } from '../jobs/envelope.ts';
import type { Config } from '../platform/config.ts';
import { newId } from '../platform/ids.ts';
import type { Identifier } from '../profile/identifier.ts';
import type { Home } from '../store/queue-shards.ts';

/**
 * A lane is a queue in which one job at a time is active in the whole fleet: jobs take effect first in, first out.
 */
export function laneName(lane: number): string {
  return `lane-${lane}`;
}

/** Average number of waiting jobs per lane at which the workers of a shard count as behind. */
export const BEHIND = 3;

/** The queue in which the console shows dead letters. A retry there replays the dead letter. */
export const DEAD_LETTER_QUEUE = 'dead-letters';

/** Two operations of one workspace on the same identifier always get the same lane. */
export function laneOf(workspaceId: string, identifier: string, lanes: number): number {
  return lanes === 1 ? 0 : crc32(`${workspaceId}\0${identifier}`) % lanes;
}

/**
 * Returns the home lane of a workspace. One lane applies all fences of a workspace. Only speed depends on this: other
 * lanes arrive at several fences at once, and one transaction applies them (workers/fence/fence-order.ts).
 */
export const homeLane = (workspaceId: string, lanes: number): number => laneOf(workspaceId, '', lanes);

/** Returns a string that identifies an identifier, for hashing and for maps. */
export function identifierKey(identifier: Identifier): string {
  if ('external_id' in identifier) return `x:${identifier.external_id}`;
  if ('user_alias' in identifier)
    return `a:${identifier.user_alias.alias_label}\0${identifier.user_alias.alias_name}`;
  if ('service_id' in identifier) return `s:${identifier.service_id}`;
  if ('email' in identifier) return `e:${identifier.email}`;
  return `p:${identifier.phone}`;
}

/** One envelope for one lane. `id` is a UUID: the job's id and the key of its ledger row. */
export interface LaneEntry {
  lane: number;
  id: string;
  envelope: Envelope;
}

/** Adds envelopes to lanes, all or none. They are on disk when the promise resolves. */
export interface LaneProducer {
  /**
   * Lanes are counted from 0 in each shard: each workspace's envelopes go to its own shard.
   * @throws {QueueUnavailable} if the queue does not confirm that every entry is stored.
   */
  add(entries: LaneEntry[]): Promise<void>;
  /** Shards of workspaces, for callers that group envelopes by shard; absent if there is one shard. */
  placing?: ShardSelection;
  /**
   * Returns the shard of a workspace and the number of its moves; absent in the producer of a lane store.
   * @throws {QueueUnavailable}
   */
  homeOf?(workspaceId: string): Promise<Home>;
}

/** Finds the shards of workspaces, which may move (src/queue/producer.ts). */
export interface ShardSelection {
  /** The shard of a workspace; undefined if it is not known here or is moving right now. */
  now(workspaceId: string): number | undefined;
  /** Resolves to the shard of a workspace as soon as it is known. @throws {QueueUnavailable} */
  settled(workspaceId: string): Promise<number>;
  /**
   * Resolves when the moves from a shard have been read recently; undefined if they are recent already.
   * @throws {QueueUnavailable}
   */
  fresh(shard: number): Promise<void> | undefined;
  /**
   * Adds entries to the lanes of a shard, counted from 0, all or none. Their workspaces must belong to the shard.
   * @returns workspaces that have moved meanwhile: their entries are not accepted, but may still take effect
   * @throws {QueueUnavailable}
   */
  addTo(shard: number, entries: LaneEntry[]): Promise<ReadonlySet<string>>;
}

/** The queue did not confirm that it stored the entries. */
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
 * that each atomic add stays within it. The lanes of all shards have consecutive numbers: the lanes of shard 1 follow
 * the lanes of shard 0. Adding shards changes the number of no lane.
 */
export interface Layout {
  shards: number;
  /** Number of lanes in each shard. */
  lanes: number;
}

export type LayoutSettings = Pick<Config, 'LANES'> & Partial<Pick<Config, 'SHARDS'>>;

export const layoutOf = ({ LANES, SHARDS = 1 }: LayoutSettings): Layout => ({ shards: SHARDS, lanes: LANES });

/** Lanes of all shards. */
export const laneCount = (settings: LayoutSettings): number => settings.LANES * (settings.SHARDS ?? 1);

/** The shard of a lane, by the lane's number among all. */
export const shardOfLane = ({ shards, lanes }: Layout, lane: number): number =>
  shards === 1 ? 0 : Math.floor(lane / lanes);

/** The lane's number in its shard, by its number among all. */
export const laneInShard = ({ lanes }: Layout, lane: number): number => lane % lanes;

/** The lane's number as shown to operators, with the shard if there are several. */
export const laneTitle = (layout: Layout, lane: number): string =>
  layout.shards === 1 ? String(lane) : `${lane} (shard ${shardOfLane(layout, lane)})`;

/**
 * Returns the prefix of the keys of a shard. Shard 0 has the tag of an installation without shards. The other tags are
 * chosen so that their slots are spread evenly: of 16 shards, three primaries have 6, 5 and 5, and four primaries have
 * 4 each.
 */
export const prefixOf = (shard: number): string => (shard === 0 ? '{penstock}' : `{penstock_${shard}}`);

/**
 * A key of each shard, whose value is a random id. It serves to find the server of a shard, to test whether the
 * server answers, and to detect that Redis was emptied or replaced.
 */
export const markOf = (shard: number): string => `${prefixOf(shard)}:mark`;

/** Lists the shard numbers in ascending order. */
export const everyShard = (shards: number): number[] => Array.from({ length: shards }, (_, shard) => shard);

/** Lists the lane numbers in ascending order. */
export const everyLane = (lanes: number): number[] => Array.from({ length: lanes }, (_, lane) => lane);

/** Index of the version digit in the text of a UUID, and of its last four digits. */
const VERSION = 14;
const TAG = 32;

/** Tag of an envelope that holds objects of several workspaces. */
export const SHARED = '0000';

/**
 * Creates an envelope id that identifies the workspace: a UUIDv8 (RFC 9562, 5.8). It begins like `newId`, so the ids
 * of one process sort in the order of their creation. It ends with a tag of the workspace. A worker can see from the
 * ids of a lane alone which envelopes may take effect before others (workers/lane/next-batch.ts). 40 random bits
 * distinguish processes.
 *
 * @param workspaceIds the workspaces of all its requests
 */
export function envelopeId(workspaceIds: Iterable<string>): string {
  const [owner, ...others] = new Set(workspaceIds);
  const tag = owner === undefined || others.length > 0 ? SHARED : tagOf(owner);
  return withTag(newId(), tag);
}

/** Returns a UUID as a UUIDv8 that ends with a tag. */
export const withTag = (id: string, tag: string): string =>
  `${id.slice(0, VERSION)}8${id.slice(VERSION + 1, TAG)}${tag}`;

/**
 * Four hexadecimal digits, never equal to `SHARED`. If two workspaces have the same tag, they wait for each other.
 */
export function tagOf(workspaceId: string): string {
  return ((crc32(workspaceId) % 65_535) + 1).toString(16).padStart(4, '0');
}

/** The tag in an envelope's id; undefined if the id has no tag (a replay, or an earlier release). */
export function tagIn(id: string): string | undefined {
  return id.length === TAG + 4 && id[VERSION] === '8' ? id.slice(TAG) : undefined;
}
