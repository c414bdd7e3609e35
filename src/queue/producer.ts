import { LRUCache } from 'lru-cache';
import { together } from '../platform/concurrency.ts';
import type { Log } from '../platform/log.ts';
import { rest } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import { findHomes, type Home, recordHome } from '../store/queue-shards.ts';
import type { QueueConnection } from './connection.ts';
import type { StoreProducer } from './lane-store.ts';
import { type LaneEntry, type LaneProducer, type Placing, QueueUnavailable } from './lanes.ts';
import { KNOWN_MS, type Move, type Moves, openMoves } from './moves.ts';

/** Where a process hands its envelopes to: lanes of one shard, counted from 0, whose the workspace of each says. */
export interface PlacedProducer extends LaneProducer, Pick<StoreProducer, 'additions' | 'ping' | 'stop'> {
  /** The queue has lost something. */
  forget(): void;
  /** The shard of a workspace, and its how many-th that is. @throws {QueueUnavailable} */
  homeOf(workspaceId: string): Promise<Home>;
  /** Where it was last heard of, or 0; absent: there is one shard. @throws {QueueUnavailable} */
  lastShardOf?(workspaceId: string): Promise<number>;
}

const FIRST: Home = { shard: 0, moves: 0 };

interface Opening {
  pool: Pool;
  /** Milliseconds for an add. */
  timeout: number;
  log: Log;
}

/** The producer of a process. With one shard nobody is asked where a workspace is. */
export function openProducer(connection: QueueConnection, { pool, timeout, log }: Opening): PlacedProducer {
  const producer = connection.laneStore.createProducer({ timeout, log });
  const { additions, ping, stop } = producer;
  const { redis, layout } = connection;
  if (layout.shards === 1 || !redis)
    return { add: producer.add, additions, ping, stop, forget() {}, homeOf: async () => FIRST };
  const moves = openMoves(redis, timeout);
  const placing = createPlacing({ pool, moves, producer, ...layout });
  return { ...placing, additions, ping, stop };
}

/** Workspaces whose shard a process remembers: some hundred bytes each. */
const MOST_HOMES = 10_000;

/** Workspaces whose shard is asked for at once, at most. */
const MOST_TOGETHER = 1000;

/** Milliseconds between two looks whether a workspace that is held has moved. */
const HELD_MS = 15;

/** What this process knows of the moves from a shard. */
interface Known {
  version: string;
  /** When it was asked for, by `performance.now()`. */
  at: number;
  /** As of then; `until` by `performance.now()`. */
  moves: Map<string, Move>;
  asking: Promise<void> | undefined;
}

interface PlacingOptions {
  pool: Pool;
  moves: Moves;
  shards: number;
  /** Of each shard. */
  lanes: number;
  producer: StoreProducer;
}

/**
 * Sends each workspace's envelopes to its shard, also while it moves to another (src/admin/move-workspace.ts has the
 * order of a move). What a shard was last known to be is remembered without end. Whoever comes to one that the
 * workspace has left finds there where it went, since the moves lie where the lanes do.
 */
function createPlacing({ pool, moves, shards, lanes, producer }: PlacingOptions) {
  const homes = new LRUCache<string, Home>({ max: MOST_HOMES });
  const known = Array.from({ length: shards }, (): Known => unknown());
  const find = together<string, Home | undefined>(async (ids) => {
    const found = await findHomes(pool, ids);
    return ids.map((id) => found.get(id));
  }, MOST_TOGETHER);

  /** The move of a workspace from a shard, if it is later than what is known of its home. */
  function leaves(id: string, { shard, moves: count }: Home): Move | undefined {
    const move = known[shard]?.moves.get(id);
    return move && move.number > count ? move : undefined;
  }

  function now(id: string): number | undefined {
    for (let home = homes.get(id); home; ) {
      const move = leaves(id, home);
      if (!move) return home.shard;
      // Asked before its time was over, it may have been over in time.
      if (move.until !== undefined) return move.until > known[home.shard]!.at ? undefined : home.shard;
      home = { shard: move.to, moves: move.number };
      homes.set(id, home);
      // Whoever moved it may have been killed before it was written down.
      void recordHome(pool, id, home).catch(() => {});
    }
    return undefined;
  }

  async function settled(id: string): Promise<number> {
    for (;;) {
      if (!homes.has(id)) {
        const found = await find(id).catch((error: unknown) => {
          throw new QueueUnavailable('it is not known which shard the workspace has', { cause: error });
        });
        // What belongs to no workspace goes to the first.
        if (!found) return 0;
        // One that another shard of these settings has is not there any more.
        homes.set(id, found.shard < shards ? found : { ...found, shard: 0 });
      }
      const { shard } = homes.get(id) ?? { shard: 0 };
      await fresh(shard);
      const settledOn = now(id);
      if (settledOn !== undefined && settledOn === shard) return shard;
      if (settledOn !== undefined) continue;
      await rest(HELD_MS);
      await ask(shard);
    }
  }

  function fresh(shard: number): Promise<void> | undefined {
    return performance.now() - known[shard]!.at < KNOWN_MS / 2 ? undefined : ask(shard);
  }

  /** One question at a time; who asks meanwhile shares its answer, which is no older than its question. */
  function ask(shard: number): Promise<void> {
    const its = known[shard]!;
    its.asking ??= askOnce(shard).finally(() => {
      its.asking = undefined;
    });
    return its.asking;
  }

  async function askOnce(shard: number): Promise<void> {
    const its = known[shard]!;
    const at = performance.now();
    try {
      const answer = await moves.read(shard, its.version);
      // By the clock of this process it is over no sooner than by that of Redis.
      const ahead = performance.now() - answer.now;
      if (Number(answer.version) < Number(its.version)) homes.clear();
      its.version = answer.version;
      its.at = Math.max(its.at, at);
      if (answer.moves)
        its.moves = new Map(
          [...answer.moves].map(([id, { until, ...move }]) => [
            id,
            until === undefined ? move : { ...move, until: until + ahead },
          ]),
        );
    } catch (error) {
      throw new QueueUnavailable(`shard ${shard} does not answer`, { cause: error });
    }
  }

  async function addTo(shard: number, entries: LaneEntry[]): Promise<ReadonlySet<string>> {
    const its = known[shard]!;
    const { version, at } = its;
    const sent = performance.now();
    await producer.add(inShard(entries, shard, lanes));
    const answered = producer.additions[shard]!.movesSeen();
    if (answered === version) {
      // In the very moment of the add nobody else had begun to move.
      if (its.version === version) its.at = Math.max(its.at, sent);
      return NOBODY;
    }
    // Whoever began to move something since waits for as long as this before it looks what is here.
    if (performance.now() - at < KNOWN_MS) {
      its.at = Number.NEGATIVE_INFINITY;
      return NOBODY;
    }
    await ask(shard);
    const here = new Set(entries.flatMap((entry) => ownersOf(entry)));
    return new Set([...here].filter((id) => now(id) !== shard));
  }

  async function add(entries: LaneEntry[]): Promise<void> {
    const owners = new Map<string, string>();
    for (const { envelope } of entries)
      if (envelope.fence && envelope.requests[0])
        owners.set(envelope.fence.id, envelope.requests[0].workspace_id);
    const byOwner = new Map<string, LaneEntry[]>();
    for (const entry of entries) {
      const { fence } = entry.envelope;
      const owner = (fence && owners.get(fence.id)) ?? ownersOf(entry)[0] ?? '';
      byOwner.set(owner, [...(byOwner.get(owner) ?? []), entry]);
    }
    const byShard = new Map<number, LaneEntry[]>();
    for (const [owner, its] of byOwner) {
      const shard = owner === '' ? 0 : await settled(owner);
      byShard.set(shard, [...(byShard.get(shard) ?? []), ...its]);
    }
    const moved = await Promise.all(
      [...byShard].map(async ([shard, its]) => {
        await fresh(shard);
        // Another has begun to move while the others were asked for.
        if (its.some((entry) => ownersOf(entry).some((id) => homes.has(id) && now(id) !== shard)))
          throw new QueueUnavailable('a workspace moves to another shard at this moment');
        return addTo(shard, its);
      }),
    );
    if (moved.some(({ size }) => size > 0))
      throw new QueueUnavailable('a workspace has moved to another shard meanwhile');
  }

  const placing: Placing = { now, settled, fresh, addTo };
  return {
    add,
    placing,
    /** The shard of a workspace as it was last heard of, or 0. @throws {QueueUnavailable} */
    async lastShardOf(id: string): Promise<number> {
      return homes.get(id)?.shard ?? settled(id);
    },
    async homeOf(id: string): Promise<Home> {
      const shard = await settled(id);
      return homes.get(id) ?? { shard, moves: 0 };
    },
    /** The queue has lost something: where workspaces went may be among it. */
    forget(): void {
      homes.clear();
      for (const shard of known.keys()) known[shard] = unknown();
    },
  };
}

const NOBODY: ReadonlySet<string> = new Set();

const unknown = (): Known => ({
  ...{ version: '', at: Number.NEGATIVE_INFINITY, moves: new Map(), asking: undefined },
});

const ownersOf = ({ envelope }: LaneEntry): string[] => [
  ...new Set(envelope.requests.map(({ workspace_id }) => workspace_id)),
];

/** Entries for the lanes of a shard, counted from 0, by the numbers that these have among all. */
function inShard(entries: LaneEntry[], shard: number, lanes: number): LaneEntry[] {
  const first = shard * lanes;
  if (first === 0) return entries;
  return entries.map(({ lane, id, envelope }) => {
    const { fence } = envelope;
    const its = fence && { ...fence, lanes: fence.lanes.map((one) => one + first) };
    return { lane: lane + first, id, envelope: its ? { ...envelope, fence: its } : envelope };
  });
}
