import { createServer } from 'node:http';
import { createApp } from './edge/app.ts';
import { createAuthenticator, createScimAuthenticator } from './edge/authenticate.ts';
import type { Control } from './edge/control/control.ts';
import { addDocsPages } from './edge/docs-pages.ts';
import { addFleetMetrics } from './edge/fleet-metrics.ts';
import { answerBrokenRequests, createHeads } from './edge/heads.ts';
import { addHealthPages } from './edge/health-pages.ts';
import { createIdempotency } from './edge/idempotency.ts';
import {
  addBacklogMetric,
  createLoadShedding,
  createRequestSemaphore,
  highWaterMarks,
} from './edge/load-shedding.ts';
import { createEdgeMetrics, watchLoopLag } from './edge/metrics.ts';
import { createLinkSettings } from './edge/open-link.ts';
import { openApiDocument } from './edge/openapi.ts';
import { addPreferencePages } from './edge/preference-pages.ts';
import { createProxy } from './edge/proxy.ts';
import { createRateLimiter } from './edge/rate-limit.ts';
import { collectGarbage, createReading } from './edge/reading.ts';
import { RefusedObjects, type RefusedObjectsOf } from './edge/refused-objects.ts';
import { clientAddress, RequestInHand } from './edge/request.ts';
import { Responses } from './edge/responses.ts';
import { addSegmentDownloads, createDownloadSettings } from './edge/segment-downloads.ts';
import { createTurns } from './edge/turns.ts';
import { openTokenBuckets } from './limits/token-buckets.ts';
import { allOperations } from './operations/index.ts';
import type { Operation } from './operations/operation.ts';
import { addressOf, limitConnections, listen, serverOptions } from './platform/listen.ts';
import { createStrangersLog } from './platform/log.ts';
import { traceRequests } from './platform/tracing.ts';
import { createRenderer } from './preferences/renderer.ts';
import { watchDependencies } from './processes/dependencies.ts';
import { startHeartbeat } from './processes/heartbeat.ts';
import { type Host, runMain } from './processes/host.ts';
import {
  addClockMetric,
  addDependencyMetric,
  addSpanMetric,
  createMetricsGuard,
  createTargetsGuard,
} from './processes/metrics.ts';
import { openProcess } from './processes/process.ts';
import type { LongStrings } from './profile/attribute-rule.ts';
import type { QueueConnection } from './queue/connection.ts';
import { watchDepth } from './queue/depth.ts';
import { createEffects } from './queue/effects.ts';
import { createGroupCommit } from './queue/enqueue.ts';
import { joinInstallation } from './queue/installation.ts';
import { everyShard, laneCount } from './queue/lanes.ts';
import { addLossMetric } from './queue/loss.ts';
import { watchOldest } from './queue/oldest.ts';
import { openProducer } from './queue/producer.ts';
import { keepAnswering, requireRedisSettings, watchMemory } from './queue/redis.ts';
import { createAnnouncer, createSyncQueue } from './queue/syncs.ts';
import { createWaitingSearch } from './queue/waiting-search.ts';
import { WaitingShares } from './queue/waiting-shares.ts';
import { rulesOf } from './schemas/vendor-rules.ts';
import type { Pool } from './store/database.ts';
import { openDatabase } from './store/open-database.ts';
import { ROW_CONNECTIONS } from './store/pool-sizes.ts';
import { hasWorkers } from './store/processes.ts';

/** Clients give up after 2 s; a Postgres that does not answer must cost them less than that. */
const PATIENCE = { connection: 1000, statement: 1500 };

/** Connectors send everyone at once, and wait for half a minute and more. */
const SCIM_SEMAPHORE = { mostWaiting: 1000, mostWaitingOfOne: 500, patience: 10_000 };

/** Each may hold tens of MB until it is answered, and a connection for a moment again and again. */
const LARGE_SEMAPHORE = {
  atOnce: 4,
  atOnceOfOne: 2,
  mostWaiting: 400,
  mostWaitingOfOne: 200,
  patience: 1500,
};

/** For as long as a body may take to come, and its answer, a client of large bodies waits anyway. */
const READING_LIMITS = { mostWaiting: 1000, patience: 5000 };

/** Bytes of request heads on their way, and of long ones in hand: some hundred of the longest. */
const MAX_HEADS_BYTES = 33_554_432;

/** Milliseconds between two samples of the event loop's delay in a program that runs several mains. */
const SHARED_SAMPLE_MS = 250;

/** The Procfile's `web`: the REST edge. Any number of them may run. */
async function main(host: Host): Promise<void> {
  const opened = await openProcess({ host, name: 'web' }, (url, { DATABASE_POOL_SIZE }) =>
    openDatabase(url, DATABASE_POOL_SIZE, {
      patience: PATIENCE,
      // Who waits no longer leaves nothing behind that goes on, and nothing that takes effect later.
      session: { statement_timeout: PATIENCE.statement - 100 },
    }),
  );
  const { id, config, log, database, connection } = opened;
  const { pool } = database;
  await requireRedisSettings(connection, log);
  const producer = openProducer(connection, { pool, timeout: config.QUEUE_TIMEOUT_MS, log });
  const { additions } = producer;
  const installation = await joinInstallation({
    ...{ name: 'web', config, pool: database.pool, connection, log, additions },
    onLoss: producer.forget,
  });
  const lanes = laneCount(config);
  const memory = watchMemory(connection);
  const shares = new WaitingShares(connection.laneStore);
  const depth = watchDepth(connection.laneStore, lanes, async (shard, waiting) => {
    // In a queue that is less than half full, no workspace has more than is free.
    const isHalfFull =
      2 * waiting > config.MAX_WAITING_ENVELOPES ||
      2 * memory.usedPercent(shard) > config.MAX_REDIS_MEMORY_PERCENT;
    if (isHalfFull && waiting > 0) await shares.look(shard);
    else shares.forget(shard);
  });
  const oldest = watchOldest(connection.laneStore, {
    lanes,
    maxAgeMs: config.MAX_ENVELOPE_AGE_MS,
    log,
    standstill: { afterMs: config.MAX_STANDSTILL_MS, hasWorkers: () => hasWorkers(pool) },
  });
  const queue = createGroupCommit(installation.guard(producer), {
    lanes: config.LANES,
    maxEnvelopeObjects: config.MAX_ENVELOPE_OBJECTS,
    maxPendingObjects: config.MAX_PENDING_OBJECTS,
    maxPendingBytes: config.MAX_PENDING_BYTES,
    backlog: depth.waiting,
  });
  // Each sample wakes an idle process.
  const loop = host.stores ? watchLoopLag(SHARED_SAMPLE_MS) : watchLoopLag();
  const reading = createReading({
    mostBytes: config.MAX_READING_BYTES,
    mostSmallBytes: config.MAX_SMALL_BODIES_BYTES,
    ...READING_LIMITS,
    collectGarbage,
  });
  const heads = createHeads(MAX_HEADS_BYTES);
  const responses = new Responses(config.MAX_RESPONSE_BYTES, reading.discard);
  const metrics = createEdgeMetrics(!host.stores);
  addLossMetric(metrics.registry, installation.loss);
  const marks = highWaterMarks(config, { depth, memory, shares, loop, reading, responses, queue });
  const loadShedding = createLoadShedding(marks, metrics.registry);
  addBacklogMetric(metrics.registry, () =>
    Math.max(
      ...everyShard(config.SHARDS).map((shard) => {
        const waiting = depth.waiting(shard);
        const free = Math.max(1, config.MAX_WAITING_ENVELOPES - waiting);
        return (waiting * shares.largestPart(shard)) / free;
      }),
    ),
  );

  const strangers = createStrangersLog(log);
  const refusedObjects = new RefusedObjects(database.pool, { log, metrics });
  const authenticator = createAuthenticator(database.pool, config.KEY_CACHE_MS, log);
  const scimAuthenticator = createScimAuthenticator(database.pool, log);
  const scimAtOnce = Math.min(config.DATABASE_POOL_SIZE, ROW_CONNECTIONS);
  const scimSemaphore = createRequestSemaphore({
    ...SCIM_SEMAPHORE,
    atOnce: scimAtOnce,
    atOnceOfOne: scimAtOnce,
  });
  const rules = rulesOf[config.VENDOR_RULES];
  const limits = openTokenBuckets(config, connection, {
    counter: 'web',
    pool: database.pool,
    log,
    shardOf: producer.lastShardOf,
  });
  const pings = { limits: limits.ping, producer: producer.ping };
  const rateLimiter = createRateLimiter(limits.buckets, rules);
  const fleet = addFleetMetrics(metrics.registry, {
    ...{ pool, connection, depth, oldest, lanes, dataDir: config.DATA_DIR },
  });
  const control = host.control && (await openControl(host.control, { pool, connection, lanes, queue }));
  host.control?.onForget(limits.forget);
  const renderer = createRenderer();
  const links = createLinkSettings(config);
  const waiting = createWaitingSearch(connection.laneStore, lanes, config.QUEUE_TIMEOUT_MS);
  const syncs = createSyncQueue(connection, config.QUEUE_TIMEOUT_MS);
  const announceRun = createAnnouncer(syncs, log);
  const resources = {
    ...{ database, serviceIdField: config.SERVICE_ID_FIELD, renderer, links, waiting, announceRun },
    downloads: createDownloadSettings(config),
  };
  const { PROXY_UPSTREAM: upstream } = config;
  const services = {
    // Of a proxied request, this process is the innermost proxy itself.
    config: upstream ? { ...config, TRUST_PROXY_HOPS: config.TRUST_PROXY_HOPS + 1 } : config,
    log,
    strangers,
    metrics,
    authenticator,
    scimAuthenticator,
    scimSemaphore,
    largeSemaphore: createRequestSemaphore(LARGE_SEMAPHORE),
    reading,
    heads,
    responses,
    rateLimiter,
    turns: createTurns(),
    queue,
    idempotency: createIdempotency(database.pool, log),
    loadShedding,
    refusedObjects: control
      ? {
          note(request: RefusedObjectsOf) {
            refusedObjects.note(request);
            control.noteRejected(request);
          },
        }
      : refusedObjects,
    effects: createEffects(database.pool),
    resources,
  };
  const described = allOperations(config.SERVICE_ID_FIELD, {
    longStrings: config.LONG_STRINGS as LongStrings,
    rules,
  });
  const operations = control
    ? described.map((operation) => control.prepare(answeredAfterEffects(operation)))
    : described;
  const dependencies = watchDependencies({ pool, connection, pings, log });
  const handle = traceRequests(
    createApp(operations, services, (app) => {
      addDocsPages(app, () => openApiDocument(operations, { control: control?.endpoints, rules }), {
        responses,
        addressOf: (request) => clientAddress(request, services.config.TRUST_PROXY_HOPS),
      });
      addPreferencePages(app, services);
      addSegmentDownloads(app, services);
      addHealthPages(app, {
        pool: database.pool,
        connection,
        pings,
        dependencies,
        registry: metrics.registry,
        responses,
        refresh: fleet.refresh,
        mayReadMetrics: createMetricsGuard(config.METRICS_TOKEN),
        mayReadTargets: createTargetsGuard(config.METRICS_TOKEN, config),
        loadShedding,
        loss: installation.loss,
        oldest,
        readyAtStandstill: config.READY_AT_STANDSTILL === 'yes',
      });
    }),
  );

  const proxy =
    upstream &&
    (await createProxy(
      {
        upstream: new URL(upstream),
        patience: config.PROXY_TIMEOUT_MS,
        mostBodyBytes: config.MAX_BODY_BYTES,
        mostBytes: config.MAX_SMALL_BODIES_BYTES,
      },
      { handle, operations, responses, registry: metrics.registry, log },
    ));
  const handleAll = proxy ? proxy.take : handle;
  const take = responses.order.inOrder(control ? control.wrap(handleAll) : handleAll);
  const server = createServer<typeof RequestInHand>(
    { ...serverOptions, IncomingMessage: RequestInHand },
    take,
  );
  // An expectation that we do not know is no reason to refuse; Node alone would, with a bare 417.
  server.on('checkExpectation', take);
  limitConnections(server);
  answerBrokenRequests(server, strangers, responses.order);
  const watchedHeads = heads.watch(server);
  const watchedResponses = responses.order.watch(server);
  const listening = await listen(server, config.PORT, config.HOST);
  const { missing } = dependencies;
  const self = {
    ...{ missing, objects: metrics.objects, refused: metrics.refusals, marks: loadShedding.levels },
    address: () => addressOf(server),
  };
  const heartbeat = startHeartbeat('web', { id, pool, log }, self);
  dependencies.onChange(heartbeat.soon);
  addDependencyMetric(metrics.registry, missing);
  addClockMetric(metrics.registry, heartbeat.clockSkew);
  addSpanMetric(metrics.registry);
  opened.services.push(
    { name: 'lines about strangers', stop: strangers.stop },
    { name: 'rate limits', stop: limits.stop },
    { name: 'producer', stop: () => producer.stop() },
    installation,
    { name: 'syncs', stop: () => syncs.stop() },
    { name: 'renderer', stop: () => renderer.stop() },
    refusedObjects,
    { name: 'authenticator', stop: () => authenticator.stop() },
    depth,
    oldest,
    memory,
    dependencies,
    heartbeat,
    keepAnswering(connection, config.LOCK_DURATION_MS, log),
    loop,
    watchedHeads,
    watchedResponses,
    { name: 'queue', stop: () => queue.drain() },
    ...(proxy ? [proxy.service] : []),
    listening,
  );
  log.info({ host: config.HOST, port: config.PORT, lanes, queue: connection.kind }, 'ready');
}

/** Loads the control endpoints, which no deployment has. */
async function openControl(
  parts: NonNullable<Host['control']>,
  {
    pool,
    connection,
    lanes,
    queue,
  }: { pool: Pool; connection: QueueConnection; lanes: number; queue: { pending(): number } },
): Promise<Control> {
  const { createControl } = await import('./edge/control/control.ts');
  return createControl({
    ...{ pool, parts, laneStore: connection.laneStore, lanes, pending: queue.pending },
  });
}

/** Milliseconds that a response of a process with control endpoints waits for its effects. */
const EFFECTS_PATIENCE_MS = 5000;

/** The caller of an operation finds its effects when the response arrives. */
const answeredAfterEffects = (operation: Operation): Operation =>
  operation.kind === 'queued' ? { readBackWithin: EFFECTS_PATIENCE_MS, ...operation } : operation;

runMain('web', main);
