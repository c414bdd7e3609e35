import { createServer } from 'node:http';
import { createReader } from './checks/read.ts';
import { findProblems } from './checks/registry.ts';
import { isOutage, ProblemWatch } from './checks/watch.ts';
import { Admission } from './edge/admission.ts';
import { createApp } from './edge/app.ts';
import { createAuthenticator, createScimAuthenticator } from './edge/authenticate.ts';
import { DirectRequests, QueuedRequests } from './edge/carry-out.ts';
import type { Control } from './edge/control/control.ts';
import { addDocsPages } from './edge/docs-pages.ts';
import { addFleetMetrics } from './edge/fleet-metrics.ts';
import { answerBrokenRequests, createHeads } from './edge/heads.ts';
import { addHealthPages, addMetricsPage, addTargetsPage } from './edge/health-pages.ts';
import { createIdempotency } from './edge/idempotency.ts';
import {
  addBacklogMetric,
  createCapacity,
  createLoadShedding,
  createRequestSemaphore,
  highWaterMarks,
} from './edge/load-shedding.ts';
import { createEdgeMetrics, watchLoopLag } from './edge/metrics.ts';
import { openApiDocument } from './edge/openapi.ts';
import { addPreferencePages, ChoiceQueue } from './edge/preference-pages.ts';
import { createProxy } from './edge/proxy.ts';
import { createRateLimiter } from './edge/rate-limit.ts';
import { createReading } from './edge/reading.ts';
import { RefusedObjects, type RefusedObjectsOf } from './edge/refused-objects.ts';
import { clientAddress, RequestInHand } from './edge/request.ts';
import { Responses } from './edge/responses.ts';
import { addSegmentDownloads } from './edge/segment-downloads.ts';
import { RequestServer } from './edge/serve.ts';
import { createTurns } from './edge/turns.ts';
import { createDownloadSettings } from './export/segment-export.ts';
import { openTokenBuckets } from './limits/token-buckets.ts';
import { allOperations } from './operations/index.ts';
import type { Operation } from './operations/operation.ts';
import { addressOf, limitConnections, listen, serverOptions } from './platform/listen.ts';
import { createStrangersLog } from './platform/log.ts';
import { traceRequests } from './platform/tracing.ts';
import { createRenderer } from './preferences/renderer.ts';
import { createLinkSettings } from './preferences/settings.ts';
import { watchDependencies } from './processes/dependencies.ts';
import { type Heartbeat, startHeartbeat } from './processes/heartbeat.ts';
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
import type { Database } from './store/database.ts';
import { openDatabase } from './store/open-database.ts';
import { ROW_CONNECTIONS } from './store/pool-sizes.ts';
import { hasWorkers, listReports } from './store/processes.ts';
import { WriteRefusals } from './store/write-refusals.ts';

/**
 * Milliseconds to wait for a connection to Postgres, and for a statement. Clients give up after 2 s, so they must get an
 * error earlier if Postgres does not answer.
 */
const POSTGRES_TIMEOUTS = { connection: 1000, statement: 1500 };

/** SCIM connectors send all users in one burst, and wait 30 s or longer for a response. */
const SCIM_SEMAPHORE = { maxWaiting: 1000, maxWaitingPerOwner: 500, patience: 10_000 };

/** A request with a large response may hold tens of MB until it is answered, and repeatedly uses a Postgres connection. */
const LARGE_SEMAPHORE = {
  maxRunning: 4,
  maxRunningPerOwner: 2,
  maxWaiting: 400,
  maxWaitingPerOwner: 200,
  patience: 1500,
};

/**
 * A large body may wait up to 5 s until there is memory for it. Its client has to wait for the upload and the response in
 * any case.
 */
const READING_LIMITS = { maxWaiting: 1000, patience: 5000 };

/**
 * Maximum bytes of all request heads that are arriving, and of the long heads of requests in progress. About 170 heads of
 * maximum size.
 */
const MAX_HEADS_BYTES = 33_554_432;

/** Milliseconds between two samples of the event loop delay in a program that runs several mains, such as `penstock dev`. */
const SHARED_SAMPLE_MS = 250;

/** Starts the process `web`, which serves the REST API. Any number of web processes may run. */
async function main(host: Host): Promise<void> {
  const opened = await openProcess({ host, name: 'web' }, (url, { DATABASE_POOL_SIZE }) =>
    openDatabase(url, DATABASE_POOL_SIZE, {
      patience: POSTGRES_TIMEOUTS,
      // Postgres cancels a statement before web stops waiting for it. Otherwise a statement could take effect after the
      // client got an error.
      session: { statement_timeout: POSTGRES_TIMEOUTS.statement - 100 },
    }),
  );
  const { id, config, log, database, connection } = opened;
  const { pool } = database;
  await requireRedisSettings(connection, log);
  let heartbeat: Heartbeat | undefined;
  let problemWatch: ProblemWatch | undefined;
  const rejectsWrites = () => heartbeat?.rejectsWrites();
  const writes = new WriteRefusals(() => {
    heartbeat?.soon();
    problemWatch?.soon();
  });
  const producer = openProducer(connection, { pool, timeout: config.QUEUE_TIMEOUT_MS, log, writes });
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
    if (isHalfFull && waiting > 0) await shares.refresh(shard);
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
  // Each sample wakes an idle process, so `penstock dev` takes fewer samples.
  const loop = host.stores ? watchLoopLag(SHARED_SAMPLE_MS) : watchLoopLag();
  const reading = createReading({
    maxBytes: config.MAX_READING_BYTES,
    maxSmallBytes: config.MAX_SMALL_BODIES_BYTES,
    ...READING_LIMITS,
    // Without the option `--expose-gc` of Node, V8 collects the garbage of bodies later.
    collectGarbage: () => globalThis.gc?.(),
  });
  const heads = createHeads(MAX_HEADS_BYTES);
  const responses = new Responses(config.MAX_RESPONSE_BYTES, reading.discard);
  const metrics = createEdgeMetrics(!host.stores);
  addLossMetric(metrics.registry, installation.loss);
  const marks = highWaterMarks(config, { depth, memory, shares, loop, reading, responses, queue });
  const loadShedding = createLoadShedding(marks, metrics.registry, config.SHARDS);
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
  const refusedObjects = new RefusedObjects(database.pool, {
    ...{ log, metrics, serviceIdField: config.SERVICE_ID_FIELD },
  });
  const authenticator = createAuthenticator(database.pool, config.KEY_CACHE_MS, log);
  const scimAuthenticator = createScimAuthenticator(database.pool, log);
  const scimAtOnce = Math.min(config.DATABASE_POOL_SIZE, ROW_CONNECTIONS);
  const scimSemaphore = createRequestSemaphore({
    ...SCIM_SEMAPHORE,
    maxRunning: scimAtOnce,
    maxRunningPerOwner: scimAtOnce,
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
  const dependencies = watchDependencies({ pool, connection, pings, log });
  const reader = createReader(
    { pool, queue: { kind: connection.kind, connection, lanes }, dataDir: config.DATA_DIR },
    { log, readsOnce: false },
    { lacking: dependencies.lacking, rejectsWrites },
  );
  problemWatch = new ProblemWatch({
    ...{ self: { name: 'web', id }, log },
    async read() {
      const readings = await reader.read();
      return { ...readings, problems: findProblems(readings, 'fleet') };
    },
    readReports: () => listReports(pool),
    isOutage: () => isOutage(dependencies, rejectsWrites),
  });
  const { problems } = problemWatch;
  const fleet = addFleetMetrics(metrics.registry, {
    ...{ pool, connection, depth, oldest, lanes, dataDir: config.DATA_DIR, problems },
  });
  const control = host.control && (await openControl(host.control, { database, connection, lanes, queue }));
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
  // The proxy of this process adds itself to X-Forwarded-For, so every request has one more hop.
  const proxyHops = config.TRUST_PROXY_HOPS + (upstream ? 1 : 0);
  const idempotency = createIdempotency(database.pool, log);
  const capacity = createCapacity(loadShedding, queue);
  const requestServer = new RequestServer({
    admission: new Admission({
      authenticators: { api: authenticator, scim: scimAuthenticator },
      rateLimiter,
      capacity,
      responses,
      bodies: { turns: createTurns(), reading, maxBytes: config.MAX_BODY_BYTES },
      proxyHops,
    }),
    queued: new QueuedRequests({
      queue,
      idempotency,
      effects: createEffects(database.pool),
      store: resources,
    }),
    direct: new DirectRequests({
      resources,
      idempotency,
      scimSemaphore,
      largeSemaphore: createRequestSemaphore(LARGE_SEMAPHORE),
      responses,
      urls: { PUBLIC_URL: config.PUBLIC_URL, TRUST_PROXY_HOPS: proxyHops },
    }),
    responses,
    records: {
      log,
      strangers,
      metrics,
      refusedObjects: control
        ? {
            note(request: RefusedObjectsOf) {
              refusedObjects.note(request);
              control.noteRejected(request);
            },
          }
        : refusedObjects,
    },
  });
  const described = allOperations(config.SERVICE_ID_FIELD, {
    longStrings: config.LONG_STRINGS as LongStrings,
    rules,
  });
  const operations = control
    ? described.map((operation) => control.prepare(answeredAfterEffects(operation)))
    : described;
  const handle = traceRequests(
    createApp(
      operations,
      { server: requestServer, heads, smallBodies: reading.small, log, strangers },
      (app) => {
        addDocsPages(app, () => openApiDocument(operations, { control: control?.endpoints, rules }), {
          responses,
          addressOf: (request) => clientAddress(request, proxyHops),
        });
        addPreferencePages(app, {
          ...{ resources, reading, responses, log },
          choices: new ChoiceQueue(queue, capacity, metrics.accepted),
        });
        addSegmentDownloads(app, { database, files: config, order: responses.order, log });
        addHealthPages(app, {
          health: { queue: connection.kind, dependencies, rejectsWrites, problems, loss: installation.loss },
          ...{ check: dependencies.check, loadShedding, oldest },
          readyAtStandstill: config.READY_AT_STANDSTILL === 'yes',
          refusedPerSecond: () => heartbeat?.refusedPerSecond() ?? 0,
        });
        addTargetsPage(app, pool, createTargetsGuard(config.METRICS_TOKEN, config));
        addMetricsPage(app, {
          ...{ registry: metrics.registry, refresh: fleet.refresh, responses },
          mayRead: createMetricsGuard(config.METRICS_TOKEN),
        });
      },
    ),
  );

  const proxy =
    upstream &&
    (await createProxy(
      {
        upstream: new URL(upstream),
        patience: config.PROXY_TIMEOUT_MS,
        maxBodyBytes: config.MAX_BODY_BYTES,
        maxBytes: config.MAX_SMALL_BODIES_BYTES,
      },
      { handle, operations, responses, registry: metrics.registry, log },
    ));
  const handleAll = proxy ? proxy.take : handle;
  const server = createServer<typeof RequestInHand>(
    { ...serverOptions, IncomingMessage: RequestInHand },
    responses.order.inOrder(control ? control.wrap(handleAll) : handleAll),
  );
  limitConnections(server);
  answerBrokenRequests(server, strangers, responses.order);
  const watchedHeads = heads.watch(server);
  const watchedResponses = responses.order.watch(server);
  const listening = await listen(server, config.PORT, config.HOST);
  const { missing } = dependencies;
  const self = {
    ...{ missing, objects: metrics.objects, refused: metrics.refusals, marks: loadShedding.levels },
    refusal: () => writes.refusal,
    address: () => addressOf(server),
  };
  heartbeat = startHeartbeat('web', { id, pool, log }, self);
  dependencies.onChange(() => {
    heartbeat?.soon();
    problemWatch?.soon();
  });
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
    problemWatch,
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

/** Loads the control endpoints of `penstock dev`. Deployments do not have them. */
async function openControl(
  parts: NonNullable<Host['control']>,
  {
    database,
    connection,
    lanes,
    queue,
  }: { database: Database; connection: QueueConnection; lanes: number; queue: { pending(): number } },
): Promise<Control> {
  const { createControl } = await import('./edge/control/control.ts');
  return createControl({
    ...{ database, parts, laneStore: connection.laneStore, lanes, pending: queue.pending },
  });
}

/** Maximum milliseconds that a response waits for the effects of its request, in a process with control endpoints. */
const MAX_EFFECTS_WAIT_MS = 5000;

/** Delays the response of a queued operation until its effects can be read, so that tests need not wait. */
const answeredAfterEffects = (operation: Operation): Operation =>
  operation.kind === 'queued' ? { readBackWithin: MAX_EFFECTS_WAIT_MS, ...operation } : operation;

runMain('web', main);
