import { createServer } from 'node:http';
import { readConfig } from './config.ts';
import { databaseUrl } from './database-url.ts';
import { createAnnouncer } from './edge/announce-run.ts';
import { createApp } from './edge/app.ts';
import { createAuthenticator } from './edge/authenticate.ts';
import { createScimAuthenticator } from './edge/authenticate-scim.ts';
import { answerBrokenRequests } from './edge/broken-requests.ts';
import { collectGarbage } from './edge/collect-garbage.ts';
import { addDocsPages } from './edge/docs-pages.ts';
import { createEffects } from './edge/effects.ts';
import { addFleetMetrics } from './edge/fleet-metrics.ts';
import { addHealthPages } from './edge/health-pages.ts';
import { createLinkSettings } from './edge/link-settings.ts';
import { limitConnections, listen, serverOptions } from './edge/listen.ts';
import { watchLoopLag } from './edge/loop-lag.ts';
import { watchMarks } from './edge/marks.ts';
import { createEdgeMetrics } from './edge/metrics.ts';
import { createOnce } from './edge/once.ts';
import { openApiDocument } from './edge/openapi.ts';
import { addPreferencePages } from './edge/preference-pages.ts';
import { createRateLimiter } from './edge/rate-limit.ts';
import { createReading } from './edge/reading.ts';
import { createTurns } from './edge/turns.ts';
import { runProcess, stopOnSignal } from './lifecycle.ts';
import { openTokenBuckets } from './limits/open-token-buckets.ts';
import { createLog } from './log.ts';
import { createMetricsGuard } from './metrics-token.ts';
import { allOperations } from './operations/index.ts';
import { createRenderer } from './preferences/renderer.ts';
import { connectProducer } from './queue/connection.ts';
import { watchDepth } from './queue/depth.ts';
import { createWaitingSearch } from './queue/find-waiting.ts';
import { createGroupCommit } from './queue/group-commit.ts';
import { keepAnswering } from './queue/keep-answering.ts';
import { watchForLoss } from './queue/loss.ts';
import { watchMemory } from './queue/memory.ts';
import { createLaneProducer } from './queue/producer.ts';
import { requireRedisSettings } from './queue/redis-settings.ts';
import { createSyncQueue } from './queue/syncs.ts';
import { openDatabase, ROW_CONNECTIONS } from './store/database.ts';

/** Clients give up after 2 s; a Postgres that does not answer must cost them less than that. */
const PATIENCE = { connection: 1000, statement: 1500 };

/** Connectors send everyone at once, and wait for half a minute and more. */
const SCIM_TURNS = { mostWaiting: 1000, patience: 10_000 };

/** For as long as a body may take to come, and its answer, a client of large bodies waits anyway. */
const READING_TURNS = { mostWaiting: 1000, patience: 5000 };

/** The Procfile's `web`: the REST edge. Any number of them may run. */
async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog('web', config.LOG_LEVEL);
  const url = databaseUrl(config);
  const database = openDatabase(url, config.DATABASE_POOL_SIZE, { patience: PATIENCE });
  const connection = connectProducer(config, url);
  await requireRedisSettings(connection, log);
  const producer = createLaneProducer(connection, config.QUEUE_TIMEOUT_MS, log);
  await watchForLoss(connection, log)
    .look()
    .catch(() => {});
  const depth = watchDepth(connection, config.LANES);
  const memory = watchMemory(connection);
  const queue = createGroupCommit(producer, {
    lanes: config.LANES,
    maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
    maxPendingObjects: config.MAX_PENDING_OBJECTS,
    maxPendingBytes: config.MAX_PENDING_BYTES,
    backlog: depth.waiting,
  });
  const loop = watchLoopLag();
  const reading = createReading({ mostBytes: config.MAX_READING_BYTES, ...READING_TURNS, collectGarbage });
  const metrics = createEdgeMetrics();
  const marks = watchMarks(
    [
      {
        name: 'queue_depth',
        mark: config.MAX_WAITING_ENVELOPES,
        unit: 'jobs',
        value: depth.waiting,
        ofQueue: true,
      },
      {
        name: 'redis_memory',
        mark: config.MAX_REDIS_MEMORY_PERCENT,
        unit: 'percent',
        value: memory.usedPercent,
        ofQueue: true,
      },
      { name: 'event_loop_lag', mark: config.MAX_EVENT_LOOP_LAG_MS, unit: 'ms', value: loop.lag },
      // Never past it: who finds no room waits.
      { name: 'reading_bytes', mark: config.MAX_READING_BYTES, unit: 'bytes', value: reading.held },
      // Past these two the queue itself refuses: it knows how much each request adds.
      {
        name: 'pending_objects',
        mark: config.MAX_PENDING_OBJECTS,
        unit: 'objects',
        value: queue.pending,
        ofQueue: true,
      },
      {
        name: 'pending_bytes',
        mark: config.MAX_PENDING_BYTES,
        unit: 'bytes',
        value: queue.pendingBytes,
        ofQueue: true,
      },
    ],
    metrics.registry,
  );

  const authenticator = createAuthenticator(database.pool, config.KEY_CACHE_MS, log);
  const scimAuthenticator = createScimAuthenticator(database.pool, log);
  const scimTurns = createTurns({
    ...SCIM_TURNS,
    atOnce: Math.min(config.DATABASE_POOL_SIZE, ROW_CONNECTIONS),
  });
  const limits = openTokenBuckets(config, connection);
  const rateLimiter = createRateLimiter(limits.buckets);
  const fleet = addFleetMetrics(metrics.registry, database.pool, depth);
  const renderer = createRenderer();
  const links = createLinkSettings(config);
  const waiting = createWaitingSearch(connection, config.LANES, config.QUEUE_TIMEOUT_MS);
  const syncs = createSyncQueue(connection, config.QUEUE_TIMEOUT_MS);
  const announceRun = createAnnouncer(syncs, log);
  const resources = {
    ...{ database, serviceIdField: config.SERVICE_ID_FIELD, renderer, links, waiting, announceRun },
  };
  const services = {
    config,
    log,
    metrics,
    authenticator,
    scimAuthenticator,
    scimTurns,
    reading,
    rateLimiter,
    queue,
    once: createOnce(database.pool, log),
    overload: marks.overload,
    effects: createEffects(database.pool),
    resources,
  };
  const operations = allOperations(config.SERVICE_ID_FIELD);
  const handle = createApp(operations, services, (app) => {
    addDocsPages(app, openApiDocument(operations));
    addPreferencePages(app, services);
    addHealthPages(app, {
      pool: database.pool,
      connection,
      pingLimits: limits.ping,
      registry: metrics.registry,
      refresh: fleet.refresh,
      mayReadMetrics: createMetricsGuard(config.METRICS_TOKEN),
      marks,
    });
  });

  const server = createServer(serverOptions, handle);
  // An expectation that we do not know is no reason to refuse; Node alone would, with a bare 417.
  server.on('checkExpectation', handle);
  limitConnections(server);
  answerBrokenRequests(server, log);
  stopOnSignal(
    [
      { name: 'database', stop: () => database.stop() },
      { name: 'queue connection', stop: () => connection.stop() },
      { name: 'rate limits', stop: limits.stop },
      { name: 'producer', stop: () => producer.stop() },
      { name: 'syncs', stop: () => syncs.stop() },
      { name: 'renderer', stop: () => renderer.stop() },
      { name: 'authenticator', stop: () => authenticator.stop() },
      depth,
      waiting,
      memory,
      keepAnswering(connection, config.LOCK_DURATION_MS, log),
      loop,
      { name: 'queue', stop: () => queue.drain() },
      await listen(server, config.PORT, config.HOST),
    ],
    log,
    config.SHUTDOWN_TIMEOUT_MS,
  );
  log.info({ host: config.HOST, port: config.PORT, lanes: config.LANES, queue: connection.kind }, 'ready');
}

runProcess('web', main);
