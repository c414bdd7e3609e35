import { getPriority, setPriority } from 'node:os';
import { integrationKeys } from '../src/embedded/address.ts';
import { checkColumns } from '../src/integrations/columns.ts';
import { openTokenBuckets } from '../src/limits/token-buckets.ts';
import type { Log } from '../src/platform/log.ts';
import { reachOfSources } from '../src/platform/reach.ts';
import { type Host, runMain } from '../src/processes/host.ts';
import { openWorkingProcess } from '../src/processes/process.ts';
import { watchProcessorWait } from '../src/processes/surroundings.ts';
import type { LongStrings } from '../src/profile/attribute-rule.ts';
import { watchDepth } from '../src/queue/depth.ts';
import { watchApplied } from '../src/queue/effects.ts';
import { lanesOf } from '../src/queue/hand-over.ts';
import { laneCount } from '../src/queue/lanes.ts';
import { createSyncQueue } from '../src/queue/syncs.ts';
import { bucketsOf, rulesOf } from '../src/schemas/vendor-rules.ts';
import { watchHorizon } from '../src/store/horizon.ts';
import { openDestination, openingBy } from '../src/streams/open-destination.ts';
import { HeldWork } from './jobs/held-work.ts';
import { JobAttempts } from './jobs/job-attempts.ts';
import { StreamDeliveries } from './streams/deliver.ts';
import { createStreamMetrics } from './streams/metrics.ts';
import { openSource } from './streams/source.ts';
import { startStreams, startStreamUpkeep } from './streams/start.ts';
import { createYielding } from './streams/yielding.ts';
import { createRowValidator, createRules } from './sync/chunk.ts';
import { createSyncMetrics } from './sync/metrics.ts';
import { createSourceOpener, RunReader, RunSources } from './sync/read.ts';
import { createRetentionMetrics, startRetention } from './sync/retention.ts';
import { RunOutboxes } from './sync/run-outbox.ts';
import { startSegmentExports } from './sync/segment-exports.ts';
import { ScheduledRuns, startSyncs, startSyncUpkeep } from './sync/start.ts';
import { areBehind, createThrottle } from './sync/throttle.ts';
import { RunWorker } from './sync/work-run.ts';

/** Maximum number of rows that one run reads. The next run continues with the remaining rows of the source. */
const MAX_ROWS = 500_000_000;

/** Runs the Procfile's `sync` process, which puts warehouse rows into the lanes. Several can run at the same time. */
async function main(host: Host): Promise<void> {
  const metrics = createSyncMetrics(!host.stores);
  const opened = await openWorkingProcess(host, 'sync', metrics);
  const { config, log, pool, url, connection, producer, producerConnection, installation, services } = opened;

  const attempts = new JobAttempts({ pool, processId: opened.id, log, registry: metrics.registry });
  const limits = openTokenBuckets(config, producerConnection, {
    ...{ counter: 'sync', pool, log },
    shardOf: producer.lastShardOf,
  });
  const syncs = createSyncQueue(producerConnection, config.QUEUE_TIMEOUT_MS);
  const lanes = laneCount(config);
  const depth = watchDepth(producerConnection.laneStore, lanes);
  const vendorRules = rulesOf[config.VENDOR_RULES];
  const usual = bucketsOf(vendorRules)['users.track'];
  const throttle = { buckets: limits.buckets, waiting: depth.waiting, lanes, usual };
  const outboxes = new RunOutboxes({
    pool,
    lanes: lanesOf(installation.guard(producer), config.LANES),
    applied: watchApplied(pool),
    metrics,
  });
  const openRunSource = createSourceOpener(integrationKeys(config), {
    serviceIdField: config.SERVICE_ID_FIELD,
    scratchBytes: config.SYNC_SCRATCH_BYTES,
    reach: reachOfSources(config),
  });
  const reader = new RunReader({
    maxRows: MAX_ROWS,
    pool,
    outboxes,
    sources: new RunSources(
      openRunSource,
      (columns, { kind }) => checkColumns(kind, columns, config.SERVICE_ID_FIELD),
      log,
    ),
    rulesOf: (run) => createRules(pool, run, config.KEY_CACHE_MS),
    throttleOf: ({ workspaceId }) => createThrottle({ ...throttle, workspaceId }),
    building: {
      judge: createRowValidator(config.SERVICE_ID_FIELD, {
        longStrings: config.LONG_STRINGS as LongStrings,
        rules: vendorRules,
      }),
      lanes: config.LANES,
      maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
    },
  });

  const processorWait = watchProcessorWait();
  const heldWork = new HeldWork(metrics.registry);
  const streamMetrics = createStreamMetrics(metrics.registry);
  const yielding = createYielding({
    areWorkersBehind: () => areBehind(throttle),
    processorWait: processorWait.share,
    maxMs: config.STREAM_YIELD_SECONDS * 1000,
    onWait: streamMetrics.yielded,
  });
  const horizon = watchHorizon(pool);
  const source = openSource(pool, config.SERVICE_ID_FIELD);
  const deliveries = new StreamDeliveries({
    ...{ pool, attempts, log, heldWork, metrics: streamMetrics },
    reading: { source, horizon: horizon.horizon, yielding },
    open: (leased) => openDestination(leased, openingBy(config, integrationKeys(config))),
  });

  services.push(
    { name: 'rate limits', stop: limits.stop },
    { name: 'sync queue', stop: () => syncs.stop() },
    depth,
    processorWait,
    startSyncUpkeep(pool, syncs, log),
    startRetention({
      ...{ databaseUrl: url, config, log, attempts },
      metrics: createRetentionMetrics(metrics.registry),
    }),
    startSegmentExports({ databaseUrl: url, config, registry: metrics.registry, log, attempts, heldWork }),
    startSyncs({
      ...{ connection, config, log, working: metrics.working },
      runs: new RunWorker({ pool, outboxes, reader, attempts, metrics, log }),
      scheduled: new ScheduledRuns({ pool, syncs, skipped: metrics.skipped, log }),
    }),
    startStreamUpkeep({ pool, metrics: streamMetrics, log, days: config.STREAM_LOG_DAYS }),
    startStreams({ pool, horizon, deliveries, yielding, log }),
  );
  opened.ready({ concurrency: config.SYNC_CONCURRENCY }, { overdue: () => heldWork.overdue() });
  lowerPriority(config.SYNC_NICE, log);
}

/** Sets the nice value, unless a supervisor has set a higher one: an ordinary process is not allowed to lower it. */
function lowerPriority(nice: number, log: Log): void {
  try {
    if (getPriority() < nice) setPriority(nice);
  } catch (error) {
    log.warn({ err: error }, 'nice value could not be set; SYNC_NICE has no effect');
  }
}

runMain('sync', main);
