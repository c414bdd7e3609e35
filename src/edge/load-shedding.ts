import { Gauge, type Registry } from 'prom-client';
import { ApiError } from '../errors.ts';
import { createSemaphore, type SemaphoreSettings } from '../platform/concurrency.ts';
import type { Config } from '../platform/config.ts';
import { addGauge } from '../processes/metrics.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { everyShard, QueueUnavailable } from '../queue/lanes.ts';
import type { WaitingShares } from '../queue/waiting-shares.ts';
import type { MarkLevel } from '../store/processes.ts';

/** Share of a mark to which its value must fall back. At the mark itself, refusing and accepting would alternate. */
const BACK = 0.9;

/** Share of a mark at which low-priority requests are refused, for marks of waiting work. */
const HALF = 0.5;

/** A high-water mark and the value that it limits. Above the mark, work is refused. */
interface HighWaterMark {
  /** Name in /metrics and /readyz. */
  name: string;
  mark: number;
  unit: string;
  /**
   * Must be cheap: every request that stores something calls it.
   * @param shard absent: the worst of all shards
   */
  value(shard?: number): number;
  /** Only requests that go through the queue are refused; absent: all requests that store something. */
  ofQueue?: boolean;
  /** The value is waiting work: low-priority requests are refused at half of the mark. */
  waits?: boolean;
  /** The amount that one workspace has. A workspace may have as much as is still free. Absent: not known. */
  heldBy?(workspaceId: string, shard?: number): number;
  /** Whether the value is recent; absent: it always is. An outdated value is shown as NaN. */
  isCurrent?(): boolean;
}

/** The values that the marks of a web process limit. */
export interface Loads {
  /** Waiting jobs, and the percentage of maxmemory that Redis has used. */
  depth: { waiting(shard?: number): number; maxWaiting(): number; isCurrent(): boolean };
  memory: { usedPercent(shard?: number): number; maxBytes(shard: number): number; isCurrent(): boolean };
  /** Each workspace's part of the work that waits in a shard. */
  shares: Pick<WaitingShares, 'partOf' | 'bytesOf'>;
  loop: Values<'lag'>;
  reading: Values<'held'> & { small: { held: number } };
  responses: Values<'held'>;
  queue: Values<'pending' | 'pendingBytes'>;
}

type Values<Name extends string> = Record<Name, () => number>;

/** Creates the marks of a web process. */
export function highWaterMarks(
  config: Config,
  { depth, memory, shares, loop, reading, responses, queue }: Loads,
): HighWaterMark[] {
  // Without shards, every workspace has shard 0.
  const shardOf = (shard: number | undefined) => shard ?? (config.SHARDS === 1 ? 0 : undefined);
  const marks: HighWaterMark[] = [
    {
      ...{
        name: 'queue_depth',
        mark: config.MAX_WAITING_ENVELOPES,
        unit: 'jobs',
        ofQueue: true,
        waits: true,
      },
      value: (shard) => (shard === undefined ? depth.maxWaiting() : depth.waiting(shard)),
      isCurrent: depth.isCurrent,
      heldBy(workspaceId, given) {
        const shard = shardOf(given);
        return shard === undefined ? 0 : depth.waiting(shard) * shares.partOf(workspaceId, shard);
      },
    },
    {
      ...{ name: 'redis_memory', mark: config.MAX_REDIS_MEMORY_PERCENT, unit: 'percent', ofQueue: true },
      ...{ value: memory.usedPercent, isCurrent: memory.isCurrent },
      heldBy(workspaceId, given) {
        const shard = shardOf(given);
        if (shard === undefined || memory.maxBytes(shard) === 0) return 0;
        return (100 * shares.bytesOf(workspaceId, shard)) / memory.maxBytes(shard);
      },
    },
    { name: 'event_loop_lag', mark: config.MAX_EVENT_LOOP_LAG_MS, unit: 'ms', value: loop.lag },
    // Never above its mark: requests without room wait.
    { name: 'reading_bytes', mark: config.MAX_READING_BYTES, unit: 'bytes', value: reading.held },
    // Never above its mark either: the oldest arriving body makes room.
    {
      ...{ name: 'small_bodies_bytes', mark: config.MAX_SMALL_BODIES_BYTES, unit: 'bytes' },
      value: () => reading.small.held,
    },
    {
      ...{ name: 'response_bytes', mark: config.MAX_RESPONSE_BYTES, unit: 'bytes' },
      value: responses.held,
    },
  ];
  // For these two, the queue itself refuses requests, because it can count what each request adds.
  return [
    ...marks,
    {
      ...{
        name: 'pending_objects',
        mark: config.MAX_PENDING_OBJECTS,
        unit: 'objects',
        ofQueue: true,
        waits: true,
      },
      value: queue.pending,
    },
    {
      ...{ name: 'pending_bytes', mark: config.MAX_PENDING_BYTES, unit: 'bytes', ofQueue: true, waits: true },
      value: queue.pendingBytes,
    },
  ];
}

/** Where work would be stored. Work for a half-full queue yields to other work. */
type Through = 'queue' | 'half-full queue' | 'store';

interface Overload {
  reason: string;
  /**
   * Name of the mark; `half` if only low-priority requests are refused, `share` if only requests of the workspace are.
   */
  limit: string;
}

/**
 * Load shedding: compares values with their high-water marks. Above a mark, work is refused until the value has
 * fallen back to nine tenths of it.
 *
 * @param shards number of shards, each with a queue of its own
 */
export function createLoadShedding(marks: HighWaterMark[], registry: Registry, shards = 1) {
  /** Marks that are exceeded, by shard; under -1 those of all shards together. */
  const over = new Map<number, Set<HighWaterMark>>();

  function isOver(one: HighWaterMark, shard?: number): boolean {
    const those = over.get(shard ?? -1) ?? new Set();
    over.set(shard ?? -1, those);
    const limit = those.has(one) ? one.mark * BACK : one.mark;
    if (one.value(shard) > limit) those.add(one);
    else those.delete(one);
    return those.has(one);
  }

  function overloadOf(
    through: Through,
    { shard, workspaceId }: { shard: number | undefined; workspaceId: string | undefined },
  ): Overload | undefined {
    let firstOverload: Overload | undefined;
    for (const one of marks) {
      const mark = one.waits && through === 'half-full queue' ? one.mark * HALF : one.mark;
      // Check every mark: a mark that is not checked would stay exceeded.
      const refuses = isOver(one, shard) || one.value(shard) > mark;
      if (one.ofQueue && through === 'store') continue;
      if (refuses)
        firstOverload ??= {
          reason: `${one.name} is ${rounded(one.value(shard))} ${one.unit}, over its mark of ${mark}`,
          limit: one.value(shard) > one.mark || mark === one.mark ? one.name : 'half',
        };
      else if (workspaceId !== undefined) firstOverload ??= overShare(one, workspaceId, shard);
    }
    return firstOverload;
  }

  addMarkMetrics(marks, registry, isOver);

  return {
    /**
     * Returns why no more may be stored now: the reason for the log, and the limit for the answer.
     * @param shard of the lanes that the work would go to; overload of other shards is no reason to refuse it. Absent: not
     * known, so that only an overload of all shards is a reason
     * @param workspaceId of the caller; absent: shares of workspaces are not checked
     * @param through where the work would be stored; `half-full queue`: it yields to other work that goes through the
     * queue
     */
    overload(
      through: Through,
      { shard, workspaceId }: { shard?: number | undefined; workspaceId?: string } = {},
    ): Overload | undefined {
      if (shard === undefined && shards > 1) {
        const overloads = everyShard(shards).map((one) => overloadOf(through, { shard: one, workspaceId }));
        return overloads.every((overload) => overload !== undefined) ? overloads[0] : undefined;
      }
      return overloadOf(through, { shard, workspaceId });
    },

    /** Returns the levels for /readyz and the heartbeat. */
    levels(): Record<string, MarkLevel> {
      return Object.fromEntries(
        marks.map((one) => {
          const { name, mark, unit, value } = one;
          return [name, { value: rounded(value()), mark, unit, over: isOver(one) }];
        }),
      );
    },
  };
}

/**
 * Checks whether a workspace has more of a limited value than is still free. One workspace alone may have at most
 * half, two a third each.
 */
function overShare(
  { name, mark, unit, value, heldBy }: HighWaterMark,
  workspaceId: string,
  shard: number | undefined,
): Overload | undefined {
  const held = heldBy?.(workspaceId, shard) ?? 0;
  const free = mark - value(shard);
  if (held <= free) return undefined;
  return {
    reason: `the workspace has ${rounded(held)} ${unit} of ${name}, over the ${rounded(free)} that are free`,
    limit: 'share',
  };
}

export type LoadShedding = ReturnType<typeof createLoadShedding>;

/** Decides whether a workspace may store more work now. */
export interface Capacity {
  /** Returns the error for work that must be refused now; undefined if it may be stored. */
  refusal(through: Through, workspaceId: string): QueueUnavailable | undefined;
}

/** @param queue knows the shard of a workspace, whose overload counts */
export function createCapacity(
  loadShedding: Pick<LoadShedding, 'overload'>,
  queue: Pick<GroupCommit, 'shardOf'>,
): Capacity {
  return {
    refusal(through, workspaceId) {
      const overload = loadShedding.overload(through, { shard: queue.shardOf(workspaceId), workspaceId });
      return overload && new QueueUnavailable(overload.reason, { limit: overload.limit });
    },
  };
}

/** Name and factor of the Prometheus base unit of each unit. */
const baseUnits: Record<string, [name: string, factor: number]> = {
  ...{ jobs: ['jobs', 1], objects: ['objects', 1], bytes: ['bytes', 1] },
  ...{ percent: ['ratio', 0.01], ms: ['seconds', 0.001] },
};

/**
 * Adds two metrics for each mark, its value and its limit, in base units, and two metrics with a label for all marks.
 */
function addMarkMetrics(
  marks: HighWaterMark[],
  registry: Registry,
  isOver: (one: HighWaterMark) => boolean,
): void {
  const registers = [registry];
  const shownValue = ({ isCurrent = () => true, value }: HighWaterMark) =>
    isCurrent() ? value() : undefined;
  for (const one of marks) {
    const [unit, factor] = baseUnits[one.unit]!;
    // Avoids names like `reading_bytes_bytes`.
    const subject = `penstock_web_${one.name.replace(new RegExp(`_${unit}$`), '')}`;

    addGauge(
      registry,
      { name: `${subject}_${unit}`, help: `Current value of the load limit ${one.name}.` },
      () => {
        const value = shownValue(one);
        return value === undefined ? undefined : value * factor;
      },
    );
    addGauge(
      registry,
      {
        name: `${subject}_limit_${unit}`,
        help: `Load limit ${one.name}: above it, requests are refused with 503.`,
      },
      () => one.mark * factor,
    );
  }
  new Gauge({
    ...{
      name: 'penstock_high_water_used_ratio',
      help: 'Share of each load limit that is used, from 0 to 1.',
    },
    ...{ labelNames: ['mark'], registers },
    collect() {
      for (const one of marks) this.set({ mark: one.name }, (shownValue(one) ?? Number.NaN) / one.mark);
    },
  });
  new Gauge({
    ...{ name: 'penstock_high_water_over', help: '1 while requests are refused because of this load limit.' },
    ...{ labelNames: ['mark'], registers },
    collect() {
      for (const one of marks) this.set({ mark: one.name }, isOver(one) ? 1 : 0);
    },
  });
}

/**
 * Shows how much of its share of the queue the workspace with the largest backlog uses.
 * @param used 1: the workspace has as much waiting as is free
 */
export function addBacklogMetric(registry: Registry, used: () => number): void {
  addGauge(
    registry,
    {
      name: 'penstock_web_largest_backlog_ratio',
      help: 'Waiting work of the workspace with most, divided by what it may have waiting. Above 1, its requests get 503. 0 while the queue is less than half full.',
    },
    used,
  );
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

type RequestSemaphoreSettings = Omit<SemaphoreSettings, 'refusal' | 'isHeavy' | 'isExcused'>;

/**
 * Limits requests that share a few connections. Admitted requests complete in time; without a limit all would
 * progress slowly and time out. Refuses with 503.
 */
export function createRequestSemaphore(settings: RequestSemaphoreSettings) {
  return createSemaphore({
    ...settings,
    refusal: () => new ApiError('serverBusy', { headers: { 'Retry-After': '1' } }),
  });
}
