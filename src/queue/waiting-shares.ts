import { LRUCache } from 'lru-cache';
import type { EnvelopeRequest } from '../jobs/envelope.ts';
import type { LaneStore } from './lane-store.ts';
import { SHARED, tagIn } from './lanes.ts';

/** Envelopes of a shard that are sampled, and the minimum for each lane. */
const SAMPLED = 256;
const LEAST_OF_LANE = 16;

/** Part of a sample below which the workspaces of a group are not looked up: so little is within every share. */
const SMALL = 1 / 32;

/**
 * Envelopes of one tag that are read to find their workspaces, and bytes of data that one reading takes from a lane.
 */
const READ_OF_TAG = 4;
const READ_BYTES = 262_144;

/** Envelopes whose workspaces are cached. */
const MOST_KNOWN = 4096;

/** Parts of an envelope's objects by workspace; their sum is 1. */
type Owners = ReadonlyMap<string, number>;

/** A sampled envelope. `weighed` is its share of the bytes of all waiting envelopes in its lane. */
interface Sampled {
  lane: number;
  id: string;
  bytes: number;
  weighed: number;
}

/** Waiting work of a shard, in bytes of the store. */
interface ShardWork {
  bytes: number;
  byWorkspace: ReadonlyMap<string, number>;
}

const NO_WORK: ShardWork = { bytes: 0, byWorkspace: new Map() };

/**
 * Estimates each workspace's part of the work that waits in the lanes of a shard, in bytes of the store. A reading
 * takes the ids and sizes of a few envelopes, spread over each lane. The tags in the ids group them, and a few
 * envelopes of each large group are read once to find the workspaces by their full ids. So all web processes get the
 * same estimate, whichever of them added an envelope and however envelopes are removed.
 */
export class WaitingShares {
  readonly #store: Pick<LaneStore, 'layout' | 'sample' | 'read'>;
  readonly #shards: ShardWork[] = [];
  readonly #owners = new LRUCache<string, Owners>({ max: MOST_KNOWN });

  constructor(store: Pick<LaneStore, 'layout' | 'sample' | 'read'>) {
    this.#store = store;
  }

  /** Samples the lanes of a shard. */
  async look(shard: number): Promise<void> {
    const { lanes } = this.#store.layout;
    const most = Math.max(LEAST_OF_LANE, Math.ceil(SAMPLED / lanes));
    const sampled = await Promise.all(
      Array.from({ length: lanes }, async (_, number): Promise<Sampled[]> => {
        const lane = shard * lanes + number;
        const { waiting, envelopes } = await this.#store.sample(lane, most);
        const each = waiting / envelopes.length;
        return envelopes.map(({ id, bytes }) => ({ lane, id, bytes, weighed: bytes * each }));
      }),
    );
    this.#shards[shard] = await this.#weigh(sampled.flat());
  }

  /** Forgets a shard in which so little waits that every workspace is within its share. */
  forget(shard: number): void {
    delete this.#shards[shard];
  }

  /** The workspace's part of the work of a shard, from 0 to 1. */
  partOf(workspaceId: string, shard: number): number {
    const { bytes } = this.#work(shard);
    return bytes === 0 ? 0 : this.bytesOf(workspaceId, shard) / bytes;
  }

  /** Bytes of the workspace that wait in a shard. */
  bytesOf(workspaceId: string, shard: number): number {
    return this.#work(shard).byWorkspace.get(workspaceId) ?? 0;
  }

  /** The part of the workspace that has most in a shard. */
  largestPart(shard: number): number {
    const { bytes, byWorkspace } = this.#work(shard);
    return bytes === 0 ? 0 : Math.max(0, ...byWorkspace.values()) / bytes;
  }

  #work(shard: number): ShardWork {
    return this.#shards[shard] ?? NO_WORK;
  }

  async #weigh(sampled: readonly Sampled[]): Promise<ShardWork> {
    const bytes = sumOf(sampled);
    const byTag = groupBy(sampled, ({ id }) => tagIn(id) ?? SHARED);
    const large = [...byTag.values()].filter((group) => sumOf(group) >= SMALL * bytes);
    await this.#learn(large.flatMap((group) => this.#unknownOf(group)));
    const byWorkspace = new Map<string, number>();
    for (const group of large) {
      const known = group.filter(({ id }) => this.#owners.has(id));
      // The whole group is divided in proportion to the envelopes that were read.
      const factor = sumOf(group) / sumOf(known);
      for (const { id, weighed } of known)
        for (const [workspaceId, part] of this.#owners.get(id)!)
          byWorkspace.set(workspaceId, (byWorkspace.get(workspaceId) ?? 0) + weighed * part * factor);
    }
    return { bytes, byWorkspace };
  }

  /** The envelopes of a group to read: the smallest ones whose workspaces are not cached. */
  #unknownOf(group: readonly Sampled[]): Sampled[] {
    const unknown = group.filter(({ id }) => !this.#owners.has(id));
    return unknown.toSorted((one, other) => one.bytes - other.bytes).slice(0, READ_OF_TAG);
  }

  /** Reads and caches the workspaces of envelopes. */
  async #learn(envelopes: readonly Sampled[]): Promise<void> {
    const byLane = groupBy(envelopes, ({ lane }) => lane);
    await Promise.all(
      [...byLane].map(async ([lane, its]) => {
        const ids = its.map(({ id }) => id);
        for (const found of await this.#store.read(lane, ids, READ_BYTES))
          if (found) this.#owners.set(found.id, ownersOf(found.data));
      }),
    );
  }
}

function groupBy<Item, Key>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

const sumOf = (sampled: readonly Sampled[]): number => sampled.reduce((sum, { weighed }) => sum + weighed, 0);

/** The parts of an envelope's objects by workspace. Earlier releases and damaged envelopes have no counts. */
function ownersOf({ requests }: { requests?: (EnvelopeRequest & { count?: number })[] }): Owners {
  const counts = new Map<string, number>();
  let all = 0;
  for (const { workspace_id, count = 1 } of Array.isArray(requests) ? requests : []) {
    counts.set(workspace_id, (counts.get(workspace_id) ?? 0) + count);
    all += count;
  }
  return new Map([...counts].map(([workspaceId, count]) => [workspaceId, count / all]));
}
