import type { Log } from '../platform/log.ts';
import type { WriteRefusals } from '../store/write-refusals.ts';
import type { LaneProducer, Layout } from './lanes.ts';
import type { Additions } from './loss.ts';
import type { WireEnvelope } from './wire.ts';

/** An envelope in a lane. */
export interface StoredEnvelope {
  id: string;
  data: WireEnvelope;
  /** When it was added, in epoch milliseconds by the clock of the server. */
  timestamp: number;
  /** Length of the JSON text that `data` was parsed from; absent where the store does not know it. */
  characters?: number;
}

/** The first envelope of a lane, without its data: that may have 4 MB, and callers ask often. */
export interface OldestEnvelope extends Pick<StoredEnvelope, 'id' | 'timestamp'> {
  /** Milliseconds since it was added, by the clock of the server that holds it. */
  age: number;
}

/**
 * The right to work a lane. A lane has one lease at a time over the whole fleet: the lane hands out its first envelope
 * to one worker, and the next one only when that worker has finished or given back the envelope, or has lost the lease.
 */
export interface Lease {
  lane: number;
  /** Id of the envelope that was handed out. */
  id: string;
  /** Token by which the store recognizes the holder. */
  token: string;
}

/** An envelope that was handed out with its lease. */
export interface LeasedEnvelope {
  lease: Lease;
  data: WireEnvelope;
  /** Number of leases of this envelope that ended without a result, because their holders died or froze. */
  stalled: number;
}

/** Fate of the leased envelope: it leaves its lane, or goes back to the head of the lane. */
export type LeaseEnd = 'finish' | 'giveBack';

/** Handles the envelope of a lease. It must not throw: the envelope would be set aside as failed. */
export type LeaseHandler = (leased: LeasedEnvelope) => Promise<LeaseEnd>;

export interface LeaseOptions {
  /** Milliseconds after which a lease that is not renewed is lost. The store renews it while the handler runs. */
  lockDuration: number;
  /** Milliseconds between two searches for leases that are lost. A lane is handed out again after the second one. */
  stalledInterval: number;
  log: Log;
}

/** A worker of one lane. */
export interface LaneWorker {
  /** Stops taking envelopes. Resolves when the handler has ended and the store has recorded the result. */
  close(): Promise<void>;
}

/** Number of envelopes that wait and that are leased (at most one). */
export interface LaneDepth {
  waiting: number;
  active: number;
}

/** A sample of the waiting envelopes of a lane. */
export interface LaneSample {
  /** Number of all waiting envelopes. */
  waiting: number;
  /** The sampled envelopes, in the order of the lane, with the bytes of each in the store. */
  envelopes: { id: string; bytes: number }[];
}

/** Adds envelopes to lanes. Lanes are numbered through all shards. */
export interface StoreProducer extends Pick<LaneProducer, 'add'> {
  /** Counts of additions by shard, from the answers to the adds. */
  additions: Additions[];
  /** @throws if an add would fail now because a connection of the producer is not open */
  ping(): Promise<void>;
  stop(): Promise<void>;
}

export interface StoreProducerOptions {
  /** Milliseconds for an add. */
  timeout: number;
  log: Log;
  /** Receives the results of the adds. */
  writes?: WriteRefusals | undefined;
}

/**
 * The lanes of the queue, in Redis or Postgres. Web, workers, the console and `penstock` access lanes only through
 * this interface; only its implementations know the keys, tables and scripts of BullMQ. docs/adr/0049 gives the
 * reasons, and test/queue/lane-store.*.test.ts checks the contract on each store.
 *
 * Lanes are numbered through all shards. A method may wait as long as its connection does, so callers set a deadline.
 */
export interface LaneStore {
  readonly layout: Layout;
  /** False while the store is known not to answer. */
  ready(): boolean;

  /**
   * Opens a producer. An add of entries for one shard is atomic, and on disk when it is answered; entries for several
   * shards are one add for each shard. An id that the lane holds already is not added again. Before the first add to
   * a lane, and after each lost connection, the lane gets its limit.
   */
  createProducer(options: StoreProducerOptions): StoreProducer;

  /** Limits a lane to one lease at a time. A store that came back empty has lost this limit. */
  limit(lane: number): Promise<void>;
  isLimited(lane: number): Promise<boolean>;

  /**
   * Runs a worker of a lane: hands its envelopes to the handler one by one, in the order in which they were added. An
   * envelope whose lease is lost goes back to the head of its lane, and its `stalled` count grows.
   */
  lease(lane: number, handler: LeaseHandler, options: LeaseOptions): LaneWorker;
  /**
   * Ends the lease of a lane whose holder no longer runs, so that the next search for lost leases finds it. A holder
   * that still runs loses the lease.
   */
  endLease(lane: number): Promise<void>;

  /** Ids of the first waiting envelopes, in the order of the lane. */
  head(lane: number, max: number): Promise<string[]>;
  /**
   * Returns the ids of the first envelopes that wait after the leased one; undefined if the lease is lost. Another
   * worker may then hold envelopes that no longer wait, and the list would have a gap at its start.
   */
  window(lease: Lease, max: number): Promise<string[] | undefined>;
  /**
   * Reads envelopes that wait, are leased or have failed.
   * @param bytes reads until the data has this many bytes and omits later envelopes; absent: reads all
   * @returns the envelopes in the order of the ids; undefined in the place of each that no longer exists
   */
  read(lane: number, ids: string[], bytes?: number): Promise<(StoredEnvelope | undefined)[]>;
  /**
   * Removes waiting envelopes that took effect. The leased envelope is kept, because finishing it ends the lease.
   * @returns false if the lease is lost: some envelopes may be left, and another worker may have been handed them
   */
  complete(lease: Lease, ids: string[]): Promise<boolean>;

  /**
   * Reads ids and sizes of waiting envelopes, one from each of `max` equal sections of the lane: of all envelopes if
   * there are no more than `max`. The cost does not grow with the data of the envelopes.
   */
  sample(lane: number, max: number): Promise<LaneSample>;

  depth(lane: number): Promise<LaneDepth>;
  /** Number of envelopes that wait in all lanes of a shard. */
  waitingInShard(shard: number): Promise<number>;
  /** The leased envelope, or else the first waiting one. */
  oldest(lane: number): Promise<OldestEnvelope | undefined>;
  /**
   * When the oldest envelope of a shard was added, in epoch milliseconds; undefined if its lanes are empty.
   * @throws if the lanes change too fast to be read
   */
  oldestInShard(shard: number): Promise<number | undefined>;
  /** Ids of the envelopes that wait or are leased and are in a range of ids, both ends included; sorted. */
  find(lane: number, range: [from: string, to: string]): Promise<string[]>;
  /** Whether an operator has paused the lane. A paused lane hands out no envelopes. */
  isPaused(lane: number): Promise<boolean>;

  /** Ids of the first envelopes that were set aside as failed. */
  failed(lane: number, max: number): Promise<string[]>;
  /** Removes an envelope that has failed or waits. A leased envelope is kept. */
  remove(lane: number, id: string): Promise<void>;
  /** Removes finished envelopes that a process of an earlier release has kept; at most 1,000. */
  forgetFinished(lane: number): Promise<void>;
}
