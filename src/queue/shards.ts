import type { Config } from '../platform/config.ts';

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
