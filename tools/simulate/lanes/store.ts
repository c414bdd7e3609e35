import type {
  LaneSample,
  LaneStore,
  LaneWorker,
  Lease,
  LeaseHandler,
  LeaseOptions,
  StoredEnvelope,
  StoreProducer,
} from '../../../src/queue/lane-store.ts';
import type { LaneEntry } from '../../../src/queue/lanes.ts';
import type { Additions } from '../../../src/queue/loss.ts';
import { Channel, Later, type Link } from '../link.ts';
import type { Random } from '../random.ts';
import type { Cancel, Host } from '../world.ts';
import { type HandedOut, type LaneServer, LockMissing } from './server.ts';

/** Milliseconds between two polls of its lane by an idle worker. */
const IDLE_MS = 500;

/** Milliseconds before a worker retries after an error. */
const RETRY_MS = 250;

/** Maximum number of attempts to remove an envelope that has taken effect and could not be finished. */
const MAX_REMOVALS = 6;

export interface MemoryStoreOptions {
  host: Host;
  server: LaneServer;
  /** Connection of workers, which send commands again after a lost connection. */
  link: Link;
  /** Connection of adds. */
  producerLink: Link;
  lanes: number;
  /** Whether an add is answered only when the replica has it. */
  hasReplica: boolean;
  /** Creates the error of a failed add with the class of the process. */
  unavailable(message: string, cause?: unknown): Error;
}

/** The lane store of one process, on a simulated server. */
export class MemoryLaneStore implements LaneStore {
  readonly layout: LaneStore['layout'];
  readonly #options: MemoryStoreOptions;
  readonly #random: Random;
  /** Redis has one connection for commands and one for adds; Postgres has a pool. */
  readonly #channels: { commands: Channel; adds: Channel } | undefined;
  #tokens = 0;

  constructor(options: MemoryStoreOptions) {
    this.#options = options;
    this.#random = options.host.random.fork('lane store');
    this.layout = { shards: 1, lanes: options.lanes };
    const isRedis = options.server.kind === 'redis';
    this.#channels = isRedis ? { commands: new Channel(), adds: new Channel() } : undefined;
  }

  ready(): boolean {
    return this.#options.link.isUp;
  }

  #send<Answer>(run: (server: LaneServer) => Answer | Later<Answer>): Promise<Answer> {
    const { link, server } = this.#options;
    return link.send(() => run(server), this.#channels?.commands);
  }

  createProducer({ timeout }: { timeout: number }): StoreProducer {
    const { host, server, producerLink, unavailable } = this.#options;
    /** Lanes whose limit was set since the connection was lost. */
    let limited = new Set<number>();
    producerLink.onCut(() => {
      limited = new Set();
    });
    const add = async (entries: LaneEntry[]): Promise<void> => {
      if (!producerLink.isUp) throw unavailable('the queue is not connected');
      const stored = new Promise<void>((resolve, reject) => {
        let stop: Cancel = () => {};
        stop = host.schedule(timeout, () => reject(new Error(`no answer within ${timeout} ms`)));
        const finishCall = (finish: () => void) => {
          stop();
          finish();
        };
        producerLink
          .send(() => {
            for (const { lane } of entries) {
              if (limited.has(lane)) continue;
              server.limit(lane);
              limited.add(lane);
            }
            return this.#store(entries);
          }, this.#channels?.adds)
          .then(
            () => finishCall(resolve),
            (error: Error) => finishCall(() => reject(error)),
          );
      });
      try {
        await stored;
      } catch (error) {
        throw unavailable('the queue did not store the objects', error);
      }
    };
    return { add, additions: [] as Additions[], ping: async () => {}, stop: async () => {} };
  }

  /** Stores an add at the server. The answer comes after the commit and, if there is a replica, after the copy to it. */
  #store(entries: readonly LaneEntry[]): Later<undefined> {
    const { host, server, hasReplica } = this.#options;
    const { world } = host;
    const stored = new Later<undefined>();
    const adding = server.prepareAdd(entries);
    const commit = () => {
      adding.commit();
      if (!hasReplica) return stored.answer(undefined);
      world.schedule(this.#random.between(0, 5), () => {
        server.replicate();
        stored.answer(undefined);
      });
      return undefined;
    };
    // Postgres numbers an add before the commit. Adds with a fence wait for each other and are numbered last.
    const hasFence = entries.some(({ envelope }) => envelope.fence !== undefined);
    if (server.kind === 'redis' || hasFence) commit();
    else
      world.schedule(
        this.#random.chance(0.2) ? this.#random.between(0, 40) : this.#random.between(0, 1),
        commit,
      );
    return stored;
  }

  limit(lane: number): Promise<void> {
    return this.#send((server) => server.limit(lane));
  }

  isLimited(lane: number): Promise<boolean> {
    return this.#send((server) => server.isLimited(lane));
  }

  lease(lane: number, handler: LeaseHandler, options: LeaseOptions): LaneWorker {
    this.#tokens++;
    const token = `${this.#options.host.name}#${this.#tokens}`;
    const worker = new MemoryLaneWorker({ ...this.#options, lane, token, handler, lease: options });
    return { close: () => worker.close() };
  }

  endLease(lane: number): Promise<void> {
    return this.#send((server) => server.endLease(lane));
  }

  head(lane: number, max: number): Promise<string[]> {
    return this.#send((server) => server.head(lane, max));
  }

  window(lease: Lease, max: number): Promise<string[] | undefined> {
    return this.#send((server) => server.window(lease.lane, lease, max));
  }

  async read(
    lane: number,
    ids: string[],
    bytes: number = Number.MAX_SAFE_INTEGER,
  ): Promise<(StoredEnvelope | undefined)[]> {
    if (ids.length === 0) return [];
    return this.#send((server) => {
      const envelopes: (StoredEnvelope | undefined)[] = [];
      let bytesLeft = bytes;
      for (const id of ids) {
        if (bytesLeft <= 0) break;
        const job = server.find(lane, id);
        bytesLeft -= job?.text.length ?? 0;
        envelopes.push(
          job && { id, data: JSON.parse(job.text), timestamp: job.timestamp, characters: job.text.length },
        );
      }
      return envelopes;
    });
  }

  complete(lease: Lease, ids: string[]): Promise<boolean> {
    return this.#send((server) => server.complete(lease.lane, lease, ids));
  }

  sample(lane: number, most: number): Promise<LaneSample> {
    return this.#send((server) => {
      const ids = server.head(lane, Number.MAX_SAFE_INTEGER);
      const taken = Math.min(ids.length, most);
      const envelopes = Array.from({ length: taken }, (_, number) => {
        const id = ids[Math.floor((number * ids.length) / taken)]!;
        return { id, bytes: server.find(lane, id)?.text.length ?? 0 };
      });
      return { waiting: ids.length, envelopes };
    });
  }

  depth(lane: number): Promise<{ waiting: number; active: number }> {
    return this.#send((server) => server.depth(lane));
  }

  waitingInShard(): Promise<number> {
    const { lanes } = this.layout;
    return this.#send((server) =>
      Array.from({ length: lanes }, (_, lane) => server.depth(lane).waiting).reduce(
        (sum, one) => sum + one,
        0,
      ),
    );
  }

  oldest(lane: number) {
    const { world } = this.#options.host;
    return this.#send((server) => {
      const job = server.oldest(lane);
      return job && { id: job.id, timestamp: job.timestamp, age: world.wallClock() - job.timestamp };
    });
  }

  oldestInShard(): Promise<number | undefined> {
    const { lanes } = this.layout;
    return this.#send((server) => {
      const times = Array.from({ length: lanes }, (_, lane) => server.oldest(lane)).flatMap((job) =>
        job ? [job.timestamp] : [],
      );
      return times.length === 0 ? undefined : Math.min(...times);
    });
  }

  find(lane: number, [from, to]: [string, string]): Promise<string[]> {
    return this.#send((server) => server.range(lane, from, to));
  }

  isPaused(lane: number): Promise<boolean> {
    return this.#send((server) => server.isPaused(lane));
  }

  failed(lane: number, max: number): Promise<string[]> {
    return this.#send((server) => server.failed(lane, max));
  }

  remove(lane: number, id: string): Promise<void> {
    return this.#send((server) => server.remove(lane, id));
  }

  async forgetFinished(): Promise<void> {}
}

interface WorkerOptions extends MemoryStoreOptions {
  lane: number;
  token: string;
  handler: LeaseHandler;
  lease: LeaseOptions;
}

/** Processes the envelopes of a lane by the rules of a BullMQ worker with a concurrency of 1. */
class MemoryLaneWorker {
  readonly #options: WorkerOptions;
  #isClosing = false;
  #wake: () => void = () => {};
  readonly #ended: Promise<void>;
  readonly #stopSearching: Cancel;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#stopSearching = this.#repeat(options.lease.stalledInterval, () =>
      this.#send((server) => server.search(options.lane, options.lease.stalledInterval)).catch(() => {}),
    );
    this.#ended = this.#run();
  }

  close(): Promise<void> {
    this.#isClosing = true;
    this.#wake();
    return this.#ended;
  }

  #send<Answer>(run: (server: LaneServer) => Answer | Later<Answer>): Promise<Answer> {
    const { link, server } = this.#options;
    return link.send(() => run(server));
  }

  /** Calls a function immediately, and then once per interval. @returns a function that stops the calls */
  #repeat(interval: number, call: () => unknown): Cancel {
    const { host } = this.#options;
    let stop: Cancel = () => {};
    const next = () => {
      void call();
      stop = host.schedule(interval, next);
    };
    stop = host.schedule(0, next);
    return () => stop();
  }

  #rest(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      this.#options.host.schedule(milliseconds, resolve);
    });
  }

  /** Waits until the server may have an envelope, and at most IDLE_MS. */
  #idle(): Promise<void> {
    const { host, server, lane } = this.#options;
    return new Promise((resolve) => {
      const done = () => {
        removeSleeper();
        stop();
        resolve();
      };
      const removeSleeper = server.sleep(lane, () => host.schedule(host.random.between(0.05, 0.6), done));
      const stop = host.schedule(IDLE_MS, done);
      this.#wake = done;
    });
  }

  async #run(): Promise<void> {
    const { lane, token, lease } = this.#options;
    let next: HandedOut | undefined;
    while (!this.#isClosing || next) {
      try {
        next ??= await this.#send((server) => server.take(lane, token, lease.lockDuration));
      } catch {
        await this.#rest(RETRY_MS);
        continue;
      }
      if (!next) {
        if (!this.#isClosing) await this.#idle();
        continue;
      }
      next = await this.#work(next);
    }
    this.#stopSearching();
  }

  /**
   * Runs the handler for an envelope, and sends the result to the server.
   * @returns the next envelope, if the server hands one out in the command that finishes this one
   */
  async #work({ id, data, stalled }: HandedOut): Promise<HandedOut | undefined> {
    const { lane, token, handler, lease } = this.#options;
    const held = { lane, id, token };
    const stopRenewing = this.#repeat(lease.lockDuration / 2, () =>
      this.#send((server) => server.renew(lane, held, lease.lockDuration)).catch(() => {}),
    );
    const end = await handler({ lease: held, data, stalled }).catch(() => 'fail' as const);
    stopRenewing();
    if (end === 'fail') {
      await this.#send((server) => server.fail(lane, held)).catch(() => {});
      return undefined;
    }
    if (end === 'giveBack') {
      await this.#send((server) => server.giveBack(lane, held)).catch(() => {});
      return undefined;
    }
    try {
      return await this.#send((server) => {
        server.finish(lane, held);
        return this.#isClosing ? undefined : server.take(lane, token, lease.lockDuration);
      });
    } catch (error) {
      void this.#removeFinished(id);
      if (!(error instanceof LockMissing)) await this.#rest(RETRY_MS);
      return undefined;
    }
  }

  async #removeFinished(id: string): Promise<void> {
    const { lane } = this.#options;
    for (let times = 0; times < MAX_REMOVALS && !this.#isClosing; times++) {
      if (times > 0) await this.#rest(Math.min(800, 50 * 2 ** times));
      try {
        return await this.#send((server) => server.remove(lane, id));
      } catch {
        // The next iteration tries again.
      }
    }
  }
}
