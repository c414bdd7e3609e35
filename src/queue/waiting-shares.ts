import { LRUCache } from 'lru-cache';
import type { EnvelopeRequest } from '../jobs/envelope.ts';
import type { LaneStore } from './lane-store.ts';
import { SHARED, tagIn } from './lanes.ts';

/** Number of envelopes of a shard in a sample, and the minimum of each lane. */
const SAMPLED = 256;
const MIN_PER_LANE = 16;

/** Part of a sample below which the workspaces of a tag are not looked up, because any workspace may have that much. */
const SMALL = 1 / 32;

/**
 * Maximum number of envelopes that are read to find the workspaces of one tag, and of envelopes of several workspaces.
 * `READ_BYTES` limits the bytes that one reading takes from a lane.
 */
const READ_OF_TAG = 4;
const READ_OF_SHARED = 16;
const READ_BYTES = 262_144;

/**
 * Maximum number of tags and of envelopes whose workspaces are cached. The workspaces of a tag are read again after
 * `TAG_MS` milliseconds.
 */
const MAX_CACHED = 4096;
const TAG_MS = 10_000;

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
  readonly #ownersOfTags = new LRUCache<string, Owners>({ max: MAX_CACHED, ttl: TAG_MS });
  readonly #ownersOfEnvelopes = new LRUCache<string, Owners>({ max: MAX_CACHED });

  constructor(store: Pick<LaneStore, 'layout' | 'sample' | 'read'>) {
    this.#store = store;
  }

  /** Samples the lanes of a shard. If that fails, no workspace counts as over its share. */
  async refresh(shard: number): Promise<void> {
    try {
      this.#shards[shard] = await this.#weigh(await this.#sample(shard));
    } catch (error) {
      this.forget(shard);
      throw error;
    }
  }

  async #sample(shard: number): Promise<Sampled[]> {
    const { lanes } = this.#store.layout;
    const max = Math.max(MIN_PER_LANE, Math.ceil(SAMPLED / lanes));
    const sampled = await Promise.all(
      Array.from({ length: lanes }, async (_, number): Promise<Sampled[]> => {
        const lane = shard * lanes + number;
        const { waiting, envelopes } = await this.#store.sample(lane, max);
        const each = waiting / envelopes.length;
        return envelopes.map(({ id, bytes }) => ({ lane, id, bytes, weighed: bytes * each }));
      }),
    );
    return sampled.flat();
  }

  /** Removes the estimate of a shard. Call it if so little waits there that every workspace is within its share. */
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
    const byWorkspace = new Map<string, number>();
    for (const [tag, group] of groupBy(sampled, ({ id }) => tagIn(id) ?? SHARED)) {
      const all = sumOf(group);
      if (all < SMALL * bytes) continue;
      const owners = tag === SHARED ? await this.#ownersOfShared(group) : await this.#ownersOfTag(tag, group);
      for (const [workspaceId, part] of owners)
        byWorkspace.set(workspaceId, (byWorkspace.get(workspaceId) ?? 0) + all * part);
    }
    return { bytes, byWorkspace };
  }

  /** The workspaces of a tag: usually one. */
  async #ownersOfTag(tag: string, group: readonly Sampled[]): Promise<Owners> {
    const cached = this.#ownersOfTags.get(tag);
    if (cached) return cached;
    const smallest = group.toSorted((one, other) => one.bytes - other.bytes).slice(0, READ_OF_TAG);
    const ownersByEnvelope = await this.#read(smallest);
    const sums = sumsOf([...ownersByEnvelope.values()].map((owners) => ({ owners, weight: 1 })));
    const owners = new Map([...sums].map(([workspaceId, { part }]) => [workspaceId, part]));
    if (ownersByEnvelope.size > 0) this.#ownersOfTags.set(tag, owners);
    return owners;
  }

  /**
   * Finds the workspaces of envelopes that contain several, or whose ids have no tag. If a workspace occurs in only one
   * of the envelopes that were read, only that envelope counts for it. If it occurs in several, the envelopes that were
   * not read are assumed to have the same mix.
   */
  async #ownersOfShared(group: readonly Sampled[]): Promise<Owners> {
    const unknown = group.filter(({ id }) => !this.#ownersOfEnvelopes.has(id));
    const step = Math.max(1, Math.floor(unknown.length / READ_OF_SHARED));
    const spread = unknown.filter((_, index) => index % step === 0).slice(0, READ_OF_SHARED);
    for (const [id, owners] of await this.#read(spread)) this.#ownersOfEnvelopes.set(id, owners);
    const weighted = group.flatMap(({ id, weighed }) => {
      const owners = this.#ownersOfEnvelopes.get(id);
      return owners ? [{ owners, weight: weighed }] : [];
    });
    const once = weighted.length / group.length;
    return new Map(
      [...sumsOf(weighted)].map(([workspaceId, { part, times }]) => [
        workspaceId,
        times > 1 ? part : part * once,
      ]),
    );
  }

  /** Reads the workspaces of envelopes. Envelopes that have left their lane are omitted. */
  async #read(envelopes: readonly Sampled[]): Promise<Map<string, Owners>> {
    const byLane = groupBy(envelopes, ({ lane }) => lane);
    const read = await Promise.all(
      [...byLane].map(([lane, ids]) =>
        this.#store.read(
          lane,
          ids.map(({ id }) => id),
          READ_BYTES,
        ),
      ),
    );
    return new Map(
      read.flat().flatMap((envelope) => (envelope ? [[envelope.id, ownersOf(envelope.data)] as const] : [])),
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

/** Weighted mean parts of envelopes by workspace, and the number of envelopes in which each occurs. */
function sumsOf(all: readonly { owners: Owners; weight: number }[]) {
  const total = all.reduce((sum, { weight }) => sum + weight, 0);
  const sums = new Map<string, { part: number; times: number }>();
  for (const { owners, weight } of all)
    for (const [workspaceId, own] of owners) {
      const { part = 0, times = 0 } = sums.get(workspaceId) ?? {};
      sums.set(workspaceId, { part: part + (own * weight) / total, times: times + 1 });
    }
  return sums;
}

/**
 * Parts of an envelope's objects by workspace; their sum is 1. A damaged envelope, or one
 * from an operator, has no workspace.
 */
function ownersOf(data: unknown): Owners {
  const requests = (data as { requests?: unknown } | null | undefined)?.requests;
  const counts = new Map<string, number>();
  let all = 0;
  for (const request of Array.isArray(requests) ? requests : []) {
    const { workspace_id, count = 0 } = (request ?? {}) as Partial<EnvelopeRequest>;
    if (typeof workspace_id !== 'string' || !(count > 0)) continue;
    counts.set(workspace_id, (counts.get(workspace_id) ?? 0) + count);
    all += count;
  }
  return new Map([...counts].map(([workspaceId, count]) => [workspaceId, count / all]));
}
