import { readConfig } from '../src/config.ts';
import { databaseUrl } from '../src/database-url.ts';
import { integrationKeys } from '../src/integration-keys.ts';
import { checkColumns } from '../src/integrations/check-columns.ts';
import { runProcess, type Service, stopOnSignal } from '../src/lifecycle.ts';
import { openTokenBuckets } from '../src/limits/open-token-buckets.ts';
import { createLog } from '../src/log.ts';
import { connectProducer, connectWorker } from '../src/queue/connection.ts';
import { watchDepth } from '../src/queue/depth.ts';
import { createLaneProducer } from '../src/queue/producer.ts';
import { requireRedisSettings } from '../src/queue/redis-settings.ts';
import { createSyncQueue } from '../src/queue/syncs.ts';
import { everyStatementByIndex } from '../src/store/by-index.ts';
import { openDatabase } from '../src/store/database.ts';
import { startStatusServer } from './status-server.ts';
import type { SyncContext } from './sync/context.ts';
import { createRowJudge } from './sync/judge-row.ts';
import { createSyncMetrics } from './sync/metrics.ts';
import { createSourceOpener } from './sync/open-run-source.ts';
import { createPace } from './sync/pace.ts';
import { createRules } from './sync/rules.ts';
import { startSyncs } from './sync/start-syncs.ts';
import { startSyncUpkeep } from './sync/upkeep.ts';

/** Rows of one run; a source with more is read on by the next. */
const MAX_ROWS = 500_000_000;

/** The Procfile's `sync`: brings the rows of warehouses into the lanes. Any number of them may run. */
async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog('sync', config.LOG_LEVEL);
  const url = databaseUrl(config);
  const database = openDatabase(url, config.DATABASE_POOL_SIZE, {
    // A process that is frozen in the middle of a transaction must not keep its locks.
    session: { idle_in_transaction_session_timeout: config.LOCK_DURATION_MS, ...everyStatementByIndex },
  });
  const { pool } = database;
  const connection = connectWorker(config, url);
  await requireRedisSettings(connection, log);
  const producerConnection = connectProducer(config, url);
  const producer = createLaneProducer(producerConnection, config.QUEUE_TIMEOUT_MS, log);
  const syncs = createSyncQueue(producerConnection, config.QUEUE_TIMEOUT_MS);
  const depth = watchDepth(producerConnection, config.LANES);
  const limits = openTokenBuckets(config, producerConnection);
  const metrics = createSyncMetrics();

  const context: SyncContext = {
    pool,
    producer,
    open: createSourceOpener(integrationKeys(config), config.SERVICE_ID_FIELD),
    checkColumns: (columns, { kind }) => checkColumns(kind, columns, config.SERVICE_ID_FIELD),
    rulesOf: (run) => createRules(pool, run, config.KEY_CACHE_MS),
    paceOf: ({ workspaceId }) => createPace(limits.buckets, depth.waiting, config.LANES, workspaceId),
    making: {
      judge: createRowJudge(config.SERVICE_ID_FIELD),
      lanes: config.LANES,
      maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
    },
    maxRows: MAX_ROWS,
    metrics,
    log,
  };

  const services: Service[] = [
    { name: 'database', stop: () => database.stop() },
    { name: 'queue connection', stop: () => connection.stop() },
    { name: 'rate limits', stop: limits.stop },
    { name: 'producer', stop: () => producer.stop().then(() => producerConnection.stop()) },
    { name: 'sync queue', stop: () => syncs.stop() },
    depth,
    startSyncUpkeep(pool, syncs, log),
    startSyncs({ connection, syncs, context, config }),
  ];
  if (config.SYNC_PORT > 0) {
    const address = { host: config.SYNC_HOST, port: config.SYNC_PORT, metricsToken: config.METRICS_TOKEN };
    services.push(await startStatusServer(address, metrics.registry, pool, connection, log));
  }
  stopOnSignal(services, log, config.SHUTDOWN_TIMEOUT_MS);
  log.info({ concurrency: config.SYNC_CONCURRENCY, queue: connection.kind }, 'ready');
}

runProcess('sync', main);
