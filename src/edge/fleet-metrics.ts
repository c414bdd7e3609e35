import { Gauge, type Registry } from 'prom-client';
import type { Problem } from '../checks/check.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import { addGauge, addOldestMetric, largest } from '../processes/metrics.ts';
import { createSurroundings } from '../processes/surroundings.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { Depth, LaneDepth } from '../queue/depth.ts';
import type { Oldest } from '../queue/oldest.ts';
import { readTotals, readUsageToday, type UsageToday } from '../store/counters.ts';
import type { Pool } from '../store/database.ts';
import { readReplication, readTableSizes } from '../store/health.ts';
import { readPartitionSizes } from '../store/partitions.ts';
import { listProcesses, SILENT_SECONDS, unworkedLanes } from '../store/processes.ts';
import { readSyncState } from '../store/sync-lists.ts';

/** Milliseconds that a scrape waits for all sources together. */
const PATIENCE_MS = 1000;

/** Milliseconds for which values that are expensive to read are cached. */
const SIZES_MS = 60_000;

/** Maximum number of shown tables (the largest) and partitions (the last months of all partitioned tables). */
const MAX_TABLES = 30;
const MAX_PARTITIONS = 24;

/** Reads and sets a group of gauges within this many milliseconds; with 0 they are absent. Never rejects. */
type Part = (patience: number) => Promise<void>;

export interface FleetSources {
  pool: Pool;
  connection: QueueConnection;
  depth: Depth;
  oldest: Pick<Oldest, 'ages' | 'standstill'>;
  /** Number of lanes in all shards. */
  lanes: number;
  /** The setting DATA_DIR. */
  dataDir: string;
  /** Problems of the installation. */
  problems(): readonly Problem[];
}

/**
 * Adds metrics of the whole installation, which are read from the queue and the store at each scrape. Every web
 * process shows the same values, so they are gauges: aggregate them with `max`, not `sum`. Values that cannot be read
 * in time are absent.
 */
export function addFleetMetrics(registry: Registry, sources: FleetSources): { refresh(): Promise<void> } {
  const { pool, depth, oldest } = sources;
  const parts: Part[] = [];

  /** Creates a gauge with labels. Gauges that are read together are absent together if the reading fails. */
  function gauge<Label extends string>(name: string, help: string, ...labelNames: Label[]) {
    return new Gauge<Label>({ name, help, labelNames, registers: [registry] });
  }

  function read<Value>(
    gauges: Gauge<string>[],
    readValue: () => Promise<Value>,
    show: (value: Value) => void,
  ): void {
    let reading: Promise<Value> | undefined;
    parts.push(async (patience) => {
      // A source that is unavailable may answer only after it recovers, so there is one pending query at a time.
      if (patience > 0)
        reading ??= readValue().finally(() => {
          reading = undefined;
        });
      const value = reading && (await withTimeout(patience, reading).catch(() => undefined));
      for (const one of gauges) one.reset();
      if (value !== undefined) show(value);
    });
  }

  /** Reads one part after the other, because requests need the connections to Postgres. */
  async function refresh(): Promise<void> {
    const end = performance.now() + PATIENCE_MS;
    for (const part of parts) await part(Math.max(0, end - performance.now()));
  }

  const depths = gauge('penstock_queue_depth', 'Jobs that wait or are being applied, by lane.', 'lane');
  const ofShards = gauge(
    'penstock_queue_shard_depth',
    'Jobs that wait or are being applied, by shard (a set of lanes).',
    'shard',
  );
  read([depths, ofShards], depth.lanes, (lanes: LaneDepth[]) => {
    for (const { lane, shard = 0, depth: jobs } of lanes) {
      depths.set({ lane }, jobs);
      ofShards.inc({ shard }, jobs);
    }
  });
  addOldestMetric(registry, oldest.ages);
  addGauge(
    registry,
    {
      name: 'penstock_queue_standstill_seconds',
      help: 'Seconds for which jobs have waited while no worker took one; 0 while workers take jobs.',
    },
    oldest.standstill,
  );

  const since = 'since the installation was created';
  const objects = gauge('penstock_installation_objects_applied', `Objects that took effect ${since}.`);
  const envelopes = gauge('penstock_installation_envelopes_applied', `Jobs that took effect ${since}.`);
  const elsewhere = gauge(
    'penstock_installation_objects_named_elsewhere',
    'Objects that identify their user in another way than the identifier that chose the lane, so that no order holds between the two lanes. With LANES=1, none is added.',
  );
  const dead = gauge(
    'penstock_installation_dead_letters',
    `Objects that could not be applied ${since}, including each failed replay.`,
  );
  const deadWaiting = gauge(
    'penstock_dead_letters_waiting',
    'Dead letters that are not yet replayed or discarded.',
  );
  read(
    [objects, envelopes, elsewhere, dead, deadWaiting],
    () => readTotals(pool),
    (totals) => {
      objects.set(totals.objects);
      envelopes.set(totals.envelopes);
      elsewhere.set(totals.namedElsewhere);
      dead.set(totals.deadLetters);
      deadWaiting.set(totals.waitingDeadLetters);
    },
  );

  const usage = gauge(
    'penstock_usage_today',
    'Objects that took effect today (UTC), by workspace (the largest 50, the others as other) and kind.',
    'workspace',
    'kind',
  );
  read(
    [usage],
    () => readUsageToday(pool),
    (today) => {
      const [shown, others] = largest(today, totalOf);
      for (const { workspace, ...kinds } of shown)
        for (const [kind, count] of Object.entries(kinds)) usage.set({ workspace, kind }, count);
      for (const { workspace: _, ...kinds } of others)
        for (const [kind, count] of Object.entries(kinds)) usage.inc({ workspace: 'other', kind }, count);
    },
  );

  const unfinished = gauge('penstock_sync_runs_unfinished', 'Runs of integrations that are not finished.');
  const oldestRun = gauge(
    'penstock_sync_oldest_run_seconds',
    'Seconds since the start of the oldest unfinished run; 0 without such a run.',
  );
  const failing = gauge(
    'penstock_sync_failing_integrations',
    'Active integrations whose last run ended with error or config_error.',
  );
  const failed = gauge(
    'penstock_sync_integration_failing',
    '1 for each active integration whose last run ended with error or config_error; at most 20 integrations.',
    'workspace',
    'integration',
  );
  read(
    [unfinished, oldestRun, failing, failed],
    () => readSyncState(pool),
    (state) => {
      unfinished.set(state.unfinished);
      oldestRun.set(state.oldestSeconds);
      failing.set(state.failing);
      for (const { workspace, integration } of state.failingNames) failed.set({ workspace, integration }, 1);
    },
  );

  const processes = gauge(
    'penstock_processes',
    'Processes that sent a heartbeat in the last 20 seconds, by name.',
    'process',
  );
  const unworked = gauge(
    'penstock_queue_lanes_unworked',
    'Lanes without a worker, according to the heartbeats of the workers.',
  );
  read(
    [processes, unworked],
    () => listProcesses(pool),
    (list) => {
      unworked.set(unworkedLanes(list, sources.lanes).length);
      for (const process of ['web', 'worker', 'sync', 'board']) processes.set({ process }, 0);
      for (const { name, silentSeconds } of list)
        if (silentSeconds < SILENT_SECONDS) processes.inc({ process: name });
    },
  );

  const bytes = gauge(
    'penstock_table_bytes',
    `Bytes of the largest ${MAX_TABLES} tables with their partitions, by part: heap, toast (large values), indexes.`,
    'table',
    'part',
  );
  const rows = gauge(
    'penstock_table_rows',
    'Rows of the largest tables by state (live, dead), according to the statistics of Postgres.',
    'table',
    'state',
  );
  const partitions = gauge(
    'penstock_partition_bytes',
    `Bytes of the last ${MAX_PARTITIONS} monthly partitions with their indexes.`,
    'table',
    'partition',
  );
  read(
    [bytes, rows, partitions],
    remembered(SIZES_MS, () => readSizes(pool)),
    ([tables, months]) => {
      for (const { table, heapBytes, toastBytes, indexBytes, liveRows, deadRows } of tables) {
        bytes.set({ table, part: 'heap' }, heapBytes);
        bytes.set({ table, part: 'toast' }, toastBytes);
        bytes.set({ table, part: 'indexes' }, indexBytes);
        rows.set({ table, state: 'live' }, liveRows);
        rows.set({ table, state: 'dead' }, deadRows);
      }
      for (const { table, partition, bytes: size } of months) partitions.set({ table, partition }, size);
    },
  );

  const lag = gauge(
    'penstock_replication_lag_seconds',
    'Seconds by which the slowest replica is behind, by store; absent without a replica or without the right to read it.',
    'store',
  );
  const lagBytes = gauge(
    'penstock_replication_lag_bytes',
    'Bytes by which the slowest replica is behind, by store; absent without a replica or without the right to read it.',
    'store',
  );
  const persistence = gauge(
    'penstock_redis_persistence_failing',
    '1 if the last attempt of Redis to write to its disk failed.',
  );
  const surroundings = createSurroundings(sources);
  read([lag, lagBytes, persistence], () => Promise.all([readReplication(pool), surroundings.redis()]), show);
  function show([postgres, redis]: [Awaited<ReturnType<typeof readReplication>>, RedisState]): void {
    // A replica that has replayed all data has no lag, even if no data is being sent.
    if (postgres.replicas > 0 && postgres.lagBytes !== null) {
      lag.set({ store: 'postgres' }, postgres.lagSeconds ?? 0);
      lagBytes.set({ store: 'postgres' }, postgres.lagBytes);
    }
    if (redis?.lagSeconds !== undefined) lag.set({ store: 'redis' }, redis.lagSeconds);
    if (redis?.lagBytes !== undefined) lagBytes.set({ store: 'redis' }, redis.lagBytes);
    if (redis) persistence.set(redis.writes ? 0 : 1);
  }

  const expiry = gauge(
    'penstock_certificate_expiry_timestamp_seconds',
    'Unix time at which the certificate of a store expires, by store.',
    'store',
  );
  const free = gauge(
    'penstock_disk_free_bytes',
    'Free bytes of the disks that this process writes to: data (DATA_DIR), tmp (TMPDIR).',
    'disk',
  );
  const size = gauge(
    'penstock_disk_size_bytes',
    'Size in bytes of the disks that this process writes to: data (DATA_DIR), tmp (TMPDIR).',
    'disk',
  );
  read([expiry, free, size], surroundings.local, ({ certificates, disks }) => {
    for (const { store, until } of certificates) expiry.set({ store }, until.getTime() / 1000);
    for (const disk of disks) {
      free.set({ disk: disk.name }, disk.freeBytes);
      size.set({ disk: disk.name }, disk.sizeBytes);
    }
  });

  const problems = gauge(
    'penstock_problems',
    'Problems by check and severity, as the console lists them; absent for checks that found none.',
    'check',
    'severity',
  );
  read(
    [problems],
    async () => sources.problems(),
    (current) => {
      for (const { id, severity } of current) problems.inc({ check: id, severity });
    },
  );

  return { refresh };
}

type RedisState = Awaited<ReturnType<ReturnType<typeof createSurroundings>['redis']>>;

const totalOf = ({ workspace: _, ...kinds }: UsageToday) =>
  Object.values(kinds).reduce((sum, count) => sum + count, 0);

async function readSizes(pool: Pool) {
  const tables = await readTableSizes(pool, MAX_TABLES);
  return [tables, await readPartitionSizes(pool, MAX_PARTITIONS)] as const;
}

/** Caches a value for this many milliseconds. */
function remembered<Value>(milliseconds: number, readValue: () => Promise<Value>): () => Promise<Value> {
  let last: { at: number; value: Value } | undefined;
  return async () => {
    if (!last || performance.now() - last.at > milliseconds) {
      last = { value: await readValue(), at: performance.now() };
    }
    return last.value;
  };
}
