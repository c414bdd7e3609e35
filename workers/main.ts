import { readConfig } from '../src/config.ts';
import { databaseUrl } from '../src/database-url.ts';
import { runProcess, type Service, stopOnSignal } from '../src/lifecycle.ts';
import { createLog } from '../src/log.ts';
import { connectProducer, connectWorker } from '../src/queue/connection.ts';
import { keepAnswering } from '../src/queue/keep-answering.ts';
import { createLaneProducer } from '../src/queue/producer.ts';
import { requireRedisSettings } from '../src/queue/redis-settings.ts';
import { everyStatementByIndex } from '../src/store/by-index.ts';
import { openDatabase } from '../src/store/database.ts';
import { createCoalescer } from './coalescer.ts';
import { startDeadLetters } from './dead-letters.ts';
import { listenForFenceNews } from './fence-news.ts';
import { createFences } from './fences.ts';
import { type Lane, startLane } from './lane.ts';
import { withLaneLease } from './lane-lease.ts';
import { createWorkerMetrics } from './metrics.ts';
import { startRemovals } from './removals.ts';
import { startStatusServer } from './status-server.ts';
import { startUpkeep } from './upkeep.ts';
import { startWatchdog } from './watchdog.ts';

/** The Procfile's `worker`: applies what the lanes hold. Any number of them may run. */
async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog('worker', config.LOG_LEVEL);
  const url = databaseUrl(config);
  const database = openDatabase(url, config.DATABASE_POOL_SIZE, {
    session: {
      // A worker that is frozen in the middle of a transaction must not keep its locks.
      idle_in_transaction_session_timeout: config.LOCK_DURATION_MS,
      ...everyStatementByIndex,
    },
  });
  const connection = connectWorker(config, url);
  await requireRedisSettings(connection, log);
  const producerConnection = connectProducer(config, url);
  const producer = createLaneProducer(producerConnection, config.QUEUE_TIMEOUT_MS, log);
  const metrics = createWorkerMetrics();

  /** By their numbers. */
  const open: (Lane | undefined)[] = [];
  const upkeep = await startUpkeep(connection, database.pool, config, log, () => {
    for (const lane of open) lane?.leaveFence();
  });
  const deadLetters = startDeadLetters({ connection, database, producer, lanes: config.LANES, log, config });
  const removals = startRemovals(database.pool, log);
  const coalescer = createCoalescer(
    database.pool,
    metrics,
    (ids) => void deadLetters.show(ids),
    removals.wake,
    log,
  );

  const fences = createFences(database.pool, config.LANES, metrics, log);
  // One lane meets no other.
  const news = config.LANES > 1 ? [listenForFenceNews(url, fences.hear, log)] : [];

  const watches = [connection, producerConnection].map((one) =>
    keepAnswering(one, config.LOCK_DURATION_MS, log),
  );
  const watchdog = startWatchdog({
    connection,
    observer: producerConnection,
    lockDuration: config.LOCK_DURATION_MS,
    log,
    exit: () => process.exit(1),
  });
  const openLane = (lane: number): Service =>
    watchdog.watch(lane, () => {
      open[lane] = startLane(lane, { connection, coalescer, fences, config, log });
      return open[lane];
    });
  const leaseLane = (lane: number): Service =>
    withLaneLease({
      databaseUrl: url,
      lane,
      patience: config.LOCK_DURATION_MS,
      start: () => openLane(lane),
      log,
    });
  const lanes = Array.from({ length: config.LANES }, (_, lane) =>
    connection.kind === 'postgres' ? leaseLane(lane) : openLane(lane),
  );

  const services: Service[] = [
    { name: 'database', stop: () => database.stop() },
    { name: 'queue connection', stop: () => connection.stop() },
    { name: 'producer', stop: () => producer.stop().then(() => producerConnection.stop()) },
    upkeep,
    deadLetters,
    removals,
    ...news,
    ...watches,
    watchdog,
    { name: 'lanes', stop: () => stopLanes(lanes) },
  ];
  if (config.WORKER_PORT > 0)
    services.push(
      await startStatusServer(
        { host: config.WORKER_HOST, port: config.WORKER_PORT, metricsToken: config.METRICS_TOKEN },
        metrics.registry,
        database.pool,
        connection,
        log,
      ),
    );
  stopOnSignal(services, log, config.SHUTDOWN_TIMEOUT_MS);
  log.info({ lanes: config.LANES, queue: connection.kind }, 'ready');

  /** The batch in hand is finished; one that cannot be, because the store is away, is left to another worker. */
  async function stopLanes(running: Service[]): Promise<void> {
    const patience = new Promise<void>((resolve) => {
      setTimeout(() => {
        coalescer.abandon();
        resolve();
      }, config.SHUTDOWN_TIMEOUT_MS * 0.6).unref();
    });
    await Promise.race([patience, Promise.all(running.map((lane) => lane.stop()))]);
  }
}

runProcess('worker', main);
