import { LRUCache } from 'lru-cache';
import { Batcher } from '../platform/batcher.ts';
import type { Log } from '../platform/log.ts';
import { rest } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import { isPostgresUnavailable } from '../store/error-cause.ts';
import { findHomes, type Home, recordHome } from '../store/queue-shards.ts';
import type { WriteRefusals } from '../store/write-refusals.ts';
import type { QueueConnection } from './connection.ts';
import type { StoreProducer } from './lane-store.ts';
import { type LaneEntry, type LaneProducer, QueueUnavailable, type ShardSelection } from './lanes.ts';
import { KNOWN_MS, type Move, type Moves, openMoves } from './moves.ts';

/**
 * The producer of a process. Lanes are counted from 0 in one shard; the workspace of an envelope determines the
 * shard.
 */
export interface ShardedProducer extends LaneProducer, Pick<StoreProducer, 'additions' | 'ping' | 'stop'> {
  /** Forgets all known shards, after the queue has lost data. */
  forget(): void;
  /** The shard of a workspace and the number of moves so far. @throws {QueueUnavailable} */
  homeOf(workspaceId: string): Promise<Home>;
  /** The last known shard of a workspace, or 0; absent if there is one shard. @throws {QueueUnavailable} */
  lastShardOf?(workspaceId: string): Promise<number>;
}

const FIRST: Home = { shard: 0, moves: 0 };

interface Opening {
  pool: Pool;
  /** Milliseconds for an add. */
  timeout: number;
  log: Log;
  /** Receives the results of the adds. */
  writes?: WriteRefusals;
}

/** Opens the producer of a process. With one shard, the shards of workspaces are never queried. */
export function openProducer(
  connection: QueueConnection,
  { pool, timeout, log, writes }: Opening,
): ShardedProducer {
  const producer = connection.laneStore.createProducer({ timeout, log, writes });
  const { additions, ping, stop } = producer;
  const { redis, layout } = connection;
  if (layout.shards === 1 || !redis)
    return { add: producer.add, additions, ping, stop, forget() {}, homeOf: async () => FIRST };
  const moves = openMoves(redis, timeout);
  const placing = createSharding({ pool, moves, producer, ...layout });
  return { ...placing, additions, ping, stop };
}

/** Maximum number of workspaces whose shard is cached: some hundred bytes each. */
const MAX_HOMES = 10_000;

/** Maximum number of workspaces per query. */
const MAX_BATCH = 1000;

/** Milliseconds between two checks whether a moving workspace has arrived. */
const HELD_MS = 15;

/** Moves of workspaces from a shard, as last read. */
interface Known {
  version: string;
  /** When the request was sent, by `performance.now()`. */
  at: number;
  /** The moves at that time; `until` by `performance.now()`. */
  moves: Map<string, Move>;
  refreshing: Promise<void> | undefined;
}

interface ShardingOptions {
  pool: Pool;
  moves: Moves;
  shards: number;
  /** Number of lanes in each shard. */
  lanes: number;
  producer: StoreProducer;
}

/**
 * Sends each workspace's envelopes to its shard, also while it moves to another (src/resources/move-workspace.ts
 * documents the order of a move). A cached shard does not expire: if the workspace has left it, the moves stored with
 * that shard's lanes give the new one.
 */
function createSharding({ pool, moves, shards, lanes, producer }: ShardingOptions) {
  const homes = new LRUCache<string, Home>({ max: MAX_HOMES });
  const shardStates = Array.from({ length: shards }, (): Known => unknown());
  const lookUps = new Batcher<string, Home | undefined>({
    async run(ids) {
      const homeById = await findHomes(pool, ids);
      return ids.map((id) => homeById.get(id));
    },
    maxCalls: MAX_BATCH,
    bytesOf: ({ length }) => length,
    isOutage: isPostgresUnavailable,
  });

  /** Returns the move of a workspace from its cached shard; undefined if the cached shard is as new as that move. */
  function leaves(id: string, { shard, moves: count }: Home): Move | undefined {
    const move = shardStates[shard]?.moves.get(id);
    return move && move.number > count ? move : undefined;
  }

  function now(id: string): number | undefined {
    for (let home = homes.get(id); home; ) {
      const move = leaves(id, home);
      if (!move) return home.shard;
      // A move with a deadline is running. If it was read before the deadline, it may still have completed, so the
      // shard is unknown. Otherwise it has expired, and the workspace stays.
      if (move.until !== undefined) return move.until > shardStates[home.shard]!.at ? undefined : home.shard;
      home = { shard: move.to, moves: move.number };
      homes.set(id, home);
      // The process that moved the workspace may have been killed before it recorded the new shard.
      void recordHome(pool, id, home).catch(() => {});
    }
    return undefined;
  }

  async function settled(id: string): Promise<number> {
    for (;;) {
      if (!homes.has(id)) {
        const stored = await lookUps.call(id).catch((error: unknown) => {
          throw new QueueUnavailable('it is not known which shard the workspace has', { cause: error });
        });
        // An unknown workspace uses the first shard.
        if (!stored) return 0;
        // With fewer shards than before, a shard that no longer exists is replaced by the first one.
        homes.set(id, stored.shard < shards ? stored : { ...stored, shard: 0 });
      }
      const { shard } = homes.get(id) ?? { shard: 0 };
      await fresh(shard);
      const settledOn = now(id);
      if (settledOn !== undefined && settledOn === shard) return shard;
      if (settledOn !== undefined) continue;
      await rest(HELD_MS);
      await refresh(shard);
    }
  }

  function fresh(shard: number): Promise<void> | undefined {
    return performance.now() - shardStates[shard]!.at < KNOWN_MS / 2 ? undefined : refresh(shard);
  }

  /**
   * Runs one query at a time. Callers that arrive during a query share its answer, which dates from the start of the
   * query.
   */
  function refresh(shard: number): Promise<void> {
    const its = shardStates[shard]!;
    its.refreshing ??= refreshOnce(shard).finally(() => {
      its.refreshing = undefined;
    });
    return its.refreshing;
  }

  async function refreshOnce(shard: number): Promise<void> {
    const its = shardStates[shard]!;
    const at = performance.now();
    try {
      const answer = await moves.read(shard, its.version);
      // Converts to the clock of this process, so that the deadline is never earlier than by the clock of Redis.
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
    const its = shardStates[shard]!;
    const { version, at } = its;
    const sent = performance.now();
    await producer.add(inShard(entries, shard, lanes));
    const answered = producer.additions[shard]!.movesSeen();
    if (answered === version) {
      // The add returned the version of the moves that is cached here, so no move had begun by then.
      if (its.version === version) its.at = Math.max(its.at, sent);
      return NOBODY;
    }
    // A move that has begun since then waits `KNOWN_MS` before it checks the lanes of this shard, so it sees this add.
    if (performance.now() - at < KNOWN_MS) {
      its.at = Number.NEGATIVE_INFINITY;
      return NOBODY;
    }
    await refresh(shard);
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
        // Another workspace may have begun to move during the queries.
        if (its.some((entry) => ownersOf(entry).some((id) => homes.has(id) && now(id) !== shard)))
          throw new QueueUnavailable('a workspace moves to another shard at this moment');
        return addTo(shard, its);
      }),
    );
    if (moved.some(({ size }) => size > 0))
      throw new QueueUnavailable('a workspace has moved to another shard meanwhile');
  }

  const placing: ShardSelection = { now, settled, fresh, addTo };
  return {
    add,
    placing,
    /** The last known shard of a workspace, or 0. @throws {QueueUnavailable} */
    async lastShardOf(id: string): Promise<number> {
      return homes.get(id)?.shard ?? settled(id);
    },
    async homeOf(id: string): Promise<Home> {
      const shard = await settled(id);
      return homes.get(id) ?? { shard, moves: 0 };
    },
    /** Forgets all shards after the queue has lost data, which may include moves. */
    forget(): void {
      homes.clear();
      for (const shard of shardStates.keys()) shardStates[shard] = unknown();
    },
  };
}

const NOBODY: ReadonlySet<string> = new Set();

const unknown = (): Known => ({
  ...{ version: '', at: Number.NEGATIVE_INFINITY, moves: new Map(), refreshing: undefined },
});

const ownersOf = ({ envelope }: LaneEntry): string[] => [
  ...new Set(envelope.requests.map(({ workspace_id }) => workspace_id)),
];

/** Converts lanes counted from 0 in a shard to lane numbers among all lanes. */
function inShard(entries: LaneEntry[], shard: number, lanes: number): LaneEntry[] {
  const first = shard * lanes;
  if (first === 0) return entries;
  return entries.map(({ lane, id, envelope }) => {
    const { fence } = envelope;
    const its = fence && { ...fence, lanes: fence.lanes.map((one) => one + first) };
    return { lane: lane + first, id, envelope: its ? { ...envelope, fence: its } : envelope };
  });
}
