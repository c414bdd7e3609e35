import type { Fence } from '../../src/jobs/envelope.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { type Layout, laneInShard } from '../../src/queue/lanes.ts';
import { markOfFence } from '../../src/queue/pack.ts';
import { holdSession } from '../../src/store/connections.ts';
import type { Pool } from '../../src/store/database.ts';
import {
  exchangeArrivals,
  FENCE_CHANNEL,
  type FenceNews,
  openFences,
  parseFenceNews,
  readDamagedMarks,
} from '../../src/store/fences.ts';
import type { WorkerMetrics } from '../metrics.ts';

/** Milliseconds for the other lanes of this process to arrive, before Postgres is queried for the remaining lanes. */
const GRACE_MS = 2;

/** Milliseconds between two queries about a fence; a wait lasts this long only if a notification was lost. */
const POLL_MS = 250;

/** Maximum number of fences in one query. */
const MAX_FENCES = 1000;

/**
 * Milliseconds for which a fence is remembered after no lane of this process waits at it: a lane can find it again in a
 * later snapshot, and would otherwise have to ask Postgres whether it was passed meanwhile.
 */
const KEPT_MS = 2000;

/** Milliseconds of waiting after which the first lane checks for fence marks that were damaged in the queue. */
const DAMAGE_MS = 2000;

/** Milliseconds of waiting before a log line, and between two lines: longer than the lane of a dead worker is idle. */
const WARN_MS = 30_000;

/** A fence at which a lane waits. */
export interface LaneWait {
  fence: Fence;
  /**
   * Whether all earlier objects of the fence's workspace in the lane have taken effect, or will do so before the fence
   * (fence-order.ts): the lane has arrived at the fence. The first lane also waits at fences at which it has not arrived,
   * because it can apply several at once.
   */
  isFirst: boolean;
}

/** A lane that a worker of this process holds. */
export interface OpenLane {
  lane: number;
  /** Called when a fence at which the lane waits is passed, or may be applied. */
  onChange(): void;
}

/** A fence at which lanes of this process wait. */
interface Barrier {
  fence: Fence;
  /** Lanes that have arrived, as far as this process knows. */
  arrived: Set<number>;
  isPassed: boolean;
  /** Whether its state was written to Postgres, so that other processes have to be told when it is passed. */
  isShared: boolean;
  /** Lanes of this process that wait, with the time since when, in milliseconds of `performance.now()`. */
  waiting: Map<OpenLane, number>;
  /** When the last lane of this process left it, in milliseconds of `performance.now()`. */
  leftAt: number;
  /** Time of the next query about it. */
  pollAt: number;
}

interface FencesOptions {
  pool: Pool;
  /** A fence does not wait for lanes beyond the layout, since they have no worker. */
  layout: Layout;
  metrics: WorkerMetrics;
  log: Log;
}

/**
 * Synchronizes lanes at fences. The first lane of a fence applies it when all other lanes have arrived; in the others,
 * the workspace of the fence waits until it has been applied. Lanes of one process meet in its memory. Lanes of several
 * processes meet through rows in Postgres; notifications make this fast. One statement announces the arrivals at many
 * fences.
 *
 * Correctness rests on two permanent facts. First, a lane has arrived at a fence: the earlier objects of the workspace in
 * this lane have taken effect, because a worker chooses them in the order of the lane. A later worker of the lane finds
 * the fence again, not the objects before it. Second, a fence with a ledger row has been passed. Therefore:
 * - If a worker dies at a fence, another worker gets its lane and arrives at the fence again. The arrival that the dead
 *   worker announced was true and stays true.
 * - If a worker dies after it has applied a fence but before it has announced that, waiting lanes find the ledger row.
 * - A frozen worker that resumes after its lanes have moved to other workers knows arrivals that are still true. If the
 *   fence has not been applied, applying it is correct; otherwise, the ledger rejects the second application.
 * - A fence that is delivered again after it was passed is skipped because of its ledger row, whether or not other
 *   lanes arrive.
 * A cyclic wait is impossible, since all lanes contain the fences in the same order: a lane waits at a fence only for
 * earlier objects.
 */
export class Fences {
  readonly #options: FencesOptions;
  /** Fences at which a lane of this process waits, or has waited within KEPT_MS, by id. */
  readonly #barriers = new Map<string, Barrier>();
  /** Open lanes of this process, with the ids of the fences at which they wait. */
  readonly #lanes = new Map<OpenLane, ReadonlySet<string>>();
  #openNumbers = new Set<number>();
  /** Passed fences that have to be announced. */
  #passed: string[] = [];
  #isAnnouncing = false;
  #isExchanging = false;
  #timer: { at: number; handle: NodeJS.Timeout } | undefined;
  #warnedAt = Number.NEGATIVE_INFINITY;
  #sweptAt = 0;

  constructor(options: FencesOptions) {
    this.#options = options;
  }

  open(lane: OpenLane): void {
    this.#lanes.set(lane, new Set());
    this.#openNumbers.add(lane.lane);
  }

  /** Ends all waits of a lane. */
  close(lane: OpenLane): void {
    this.wait(lane, []);
    this.#lanes.delete(lane);
    this.#openNumbers = new Set([...this.#lanes.keys()].map((open) => open.lane));
  }

  /** Handles a notification of another process; has no effect unless a lane of this process waits at that fence. */
  readonly hear = ({ fence, lane }: FenceNews): void => {
    const barrier = this.#barriers.get(fence);
    if (!barrier) return;
    barrier.isShared = true;
    this.#update(barrier, { passed: lane === undefined, arrived: lane === undefined ? [] : [lane] });
  };

  /** Replaces the fences at which a lane waits. */
  wait(lane: OpenLane, waits: readonly LaneWait[]): void {
    const before = this.#lanes.get(lane);
    if (!before || (waits.length === 0 && before.size === 0)) return;
    const now = performance.now();
    const ids = new Set(waits.map(({ fence }) => fence.id));
    for (const id of before) if (!ids.has(id)) this.#leave(lane, id);
    for (const { fence, isFirst } of waits) {
      const barrier = this.#barriers.get(fence.id) ?? this.#create(fence);
      const isNew = !barrier.waiting.has(lane);
      if (isNew) barrier.waiting.set(lane, now);
      const hasArrived = isFirst && !barrier.arrived.has(lane.lane);
      if (hasArrived) this.#update(barrier, { passed: false, arrived: [lane.lane] });
      // A lane that has arrived polls until the fence is passed, because a notification can be lost.
      const needsPoll = isFirst && !barrier.isPassed && barrier.pollAt === Number.POSITIVE_INFINITY;
      if (hasArrived || needsPoll || (isNew && !this.#isLocal(fence))) this.#pollSoon(barrier, now);
    }
    this.#lanes.set(lane, ids);
    this.#sweep(now);
  }

  /** Forgets fences that no lane has waited at for KEPT_MS. */
  #sweep(now: number): void {
    if (now - this.#sweptAt < KEPT_MS / 2) return;
    this.#sweptAt = now;
    for (const [id, { waiting, leftAt }] of this.#barriers)
      if (waiting.size === 0 && now - leftAt >= KEPT_MS) this.#barriers.delete(id);
  }

  #create(fence: Fence): Barrier {
    const barrier: Barrier = {
      ...{ fence, isPassed: false, isShared: false, pollAt: Number.POSITIVE_INFINITY },
      ...{ arrived: new Set(), waiting: new Map(), leftAt: Number.POSITIVE_INFINITY },
    };
    this.#barriers.set(fence.id, barrier);
    return barrier;
  }

  #leave(lane: OpenLane, id: string): void {
    const barrier = this.#barriers.get(id);
    if (!barrier?.waiting.delete(lane)) return;
    barrier.leftAt = performance.now();
    // No poll while nobody waits.
    if (barrier.waiting.size === 0) barrier.pollAt = Number.POSITIVE_INFINITY;
  }

  /** Returns whether the entry of a fence in a lane may be applied, or, in the other lanes, removed. */
  isOpen({ id, lanes }: Fence, lane: number): boolean {
    const barrier = this.#barriers.get(id);
    if (barrier?.isPassed) return true;
    return lane === lanes[0] && this.#missing(lanes, barrier).length === 0;
  }

  /** Returns whether the objects of a fence have taken effect, as far as this process knows. */
  isPassed({ id }: Fence): boolean {
    return this.#barriers.get(id)?.isPassed ?? false;
  }

  /** Returns the lanes that have not arrived at a fence, as far as this process knows. */
  #missing([, ...others]: readonly number[], barrier: Barrier | undefined): number[] {
    return others.filter((lane) => this.#hasWorker(lane) && !barrier?.arrived.has(lane));
  }

  /** Returns whether all lanes of a fence are worked by this process, so that other processes need no news of it. */
  #isLocal({ lanes }: Fence): boolean {
    return lanes.every((lane) => !this.#hasWorker(lane) || this.#openNumbers.has(lane));
  }

  #hasWorker(lane: number): boolean {
    const { shards, lanes } = this.#options.layout;
    return lane < shards * lanes;
  }

  #update(barrier: Barrier, { passed, arrived }: { passed: boolean; arrived: readonly number[] }): void {
    const { fence, waiting } = barrier;
    const wasOpen = new Map([...waiting.keys()].map((lane) => [lane, this.isOpen(fence, lane.lane)]));
    for (const lane of arrived) barrier.arrived.add(lane);
    barrier.isPassed ||= passed;
    const now = performance.now();
    for (const [lane, since] of waiting) {
      if (wasOpen.get(lane) || !this.isOpen(fence, lane.lane)) continue;
      this.#options.metrics.fenceWaitSeconds.observe((now - since) / 1000);
      lane.onChange();
    }
  }

  /** Records fences whose objects have taken effect. */
  pass(fences: readonly Fence[]): void {
    for (const fence of fences) {
      const barrier = this.#barriers.get(fence.id);
      this.#options.metrics.fences.inc();
      if (barrier?.isShared || !this.#isLocal(fence)) this.#passed.push(fence.id);
      if (barrier) this.#update(barrier, { passed: true, arrived: [] });
    }
    void this.#announcePassed();
  }

  async #announcePassed(): Promise<void> {
    if (this.#isAnnouncing) return;
    this.#isAnnouncing = true;
    while (this.#passed.length > 0) {
      const fences = this.#passed.splice(0, MAX_FENCES);
      await this.#trying(fences[0]!, () => openFences(this.#options.pool, fences));
    }
    this.#isAnnouncing = false;
  }

  #pollSoon(barrier: Barrier, now: number): void {
    const pollAt = now + (this.#isLocal(barrier.fence) ? POLL_MS : GRACE_MS);
    barrier.pollAt = Math.min(barrier.pollAt, pollAt);
    this.#wake(barrier.pollAt);
  }

  #wake(at: number): void {
    // A barrier that no lane has reached yet has no time.
    if (at === Number.POSITIVE_INFINITY || this.#isExchanging || (this.#timer && this.#timer.at <= at))
      return;
    clearTimeout(this.#timer?.handle);
    const handle = setTimeout(
      () => {
        this.#timer = undefined;
        void this.#exchange();
      },
      Math.max(0, at - performance.now()),
    );
    this.#timer = { at, handle };
  }

  /** Announces arrivals and reads the state of the fences whose time has come. One exchange runs at a time. */
  async #exchange(): Promise<void> {
    this.#isExchanging = true;
    const now = performance.now();
    const due: Barrier[] = [];
    for (const barrier of this.#barriers.values()) {
      if (barrier.isPassed || barrier.pollAt > now) continue;
      due.push(barrier);
      if (due.length === MAX_FENCES) break;
    }
    for (const barrier of due) {
      barrier.pollAt = this.#isReached(barrier) ? now + POLL_MS : Number.POSITIVE_INFINITY;
      barrier.isShared = true;
    }
    if (due.length > 0) await this.#trying(due[0]!.fence.id, () => this.#exchangeSome(due));
    this.#isExchanging = false;
    const next = [...this.#barriers.values()].filter(({ isPassed }) => !isPassed).map(({ pollAt }) => pollAt);
    if (next.length > 0) this.#wake(next.reduce((one, other) => Math.min(one, other)));
  }

  /**
   * Returns whether a waiting lane of this process has arrived. Other lanes wait for earlier objects, so that the state of
   * the fence is asked once, and later changes come as notifications.
   */
  #isReached({ waiting, arrived }: Barrier): boolean {
    return [...waiting.keys()].some(({ lane }) => arrived.has(lane));
  }

  async #exchangeSome(due: readonly Barrier[]): Promise<void> {
    const { pool } = this.#options;
    const states = await exchangeArrivals(
      pool,
      due.map(({ fence, arrived, waiting }) => ({
        fence: fence.id,
        lanes: [...new Set([...waiting.keys()].map(({ lane }) => lane))].filter(
          (lane) => lane !== fence.lanes[0] && arrived.has(lane),
        ),
      })),
    );
    const barriers = new Map(due.map((barrier) => [barrier.fence.id, barrier]));
    for (const { fence, passed, arrived } of states) this.#update(barriers.get(fence)!, { passed, arrived });
    await this.#checkLongWaits(due.filter((barrier) => !barrier.isPassed && this.#isReached(barrier)));
  }

  async #checkLongWaits(barriers: readonly Barrier[]): Promise<void> {
    const now = performance.now();
    const waits = barriers.map((barrier) => {
      const [lane, since] = [...barrier.waiting].find(([{ lane }]) => lane === barrier.fence.lanes[0]) ??
        [...barrier.waiting][0] ?? [undefined, now];
      return { barrier, lane: lane?.lane, milliseconds: now - since };
    });
    const suspects = waits.filter(
      ({ barrier, lane, milliseconds }) => lane === barrier.fence.lanes[0] && milliseconds > DAMAGE_MS,
    );
    if (suspects.length > 0) await this.#countDamaged(suspects.map(({ barrier }) => barrier));
    const long = waits.filter(({ milliseconds }) => milliseconds > WARN_MS);
    if (long.length === 0 || now - this.#warnedAt < WARN_MS) return;
    this.#warnedAt = now;
    const [{ barrier, lane }] = long as [(typeof long)[number]];
    const { fence } = barrier;
    this.#options.log.warn(
      {
        ...{ fence: fence.id, lane, workspace_id: fence.workspace_id },
        ...{ missing: this.#missing(fence.lanes, barrier), fences: long.length },
      },
      'lane has waited long at a fence',
    );
  }

  /**
   * Counts lanes whose fence mark was damaged in the queue as arrived. Their worker could not recognize the mark and
   * turned it into a dead letter, so the ledger has its id.
   */
  async #countDamaged(barriers: readonly Barrier[]): Promise<void> {
    const { pool, layout } = this.#options;
    const marks = barriers.flatMap((barrier) =>
      this.#missing(barrier.fence.lanes, barrier).map((lane) => ({
        ...{ barrier, lane },
        id: markOfFence(barrier.fence.id, laneInShard(layout, lane)),
      })),
    );
    const damaged = await readDamagedMarks(
      pool,
      marks.map(({ id }) => id),
    );
    for (const { barrier, lane, id } of marks)
      if (damaged.has(id)) this.#update(barrier, { passed: false, arrived: [lane] });
  }

  /** Runs a query and logs its failure; waiting lanes repeat it. */
  async #trying(fence: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#options.log.warn({ err: error, fence }, 'state of a fence could not be read');
    }
  }
}

/** Milliseconds between two attempts to reconnect. */
const RETRY_MS = 1000;

/** Milliseconds between two checks of the connection, and the maximum wait for the reply. */
const BEAT_MS = 5000;

/**
 * Listens for notifications of other workers about fences, on a dedicated connection. Notifications only reduce
 * latency: without the connection, or with a pooler that does not support LISTEN, lanes poll Postgres.
 */
export function listenForFenceNews(databaseUrl: string, hear: (news: FenceNews) => void, log: Log): Service {
  const stop = holdSession({
    databaseUrl,
    what: 'news of fences',
    patience: BEAT_MS,
    beat: BEAT_MS,
    retry: RETRY_MS,
    async hold(client, { lost }) {
      client.on('notification', ({ channel, payload }) => {
        if (channel === FENCE_CHANNEL && payload) hear(parseFenceNews(payload));
      });
      await client.query(`listen ${FENCE_CHANNEL}`);
      await lost;
    },
    report: (error) =>
      log.warn({ err: error }, 'notifications about fences are unavailable; polling instead'),
  });
  return { name: 'news of fences', stop };
}
