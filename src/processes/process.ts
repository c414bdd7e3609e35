import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';
import type { Config } from '../platform/config.ts';
import { packageVersion } from '../platform/files.ts';
import { newId } from '../platform/ids.ts';
import { isLeaving, type Service } from '../platform/lifecycle.ts';
import { addressOf, limitConnections, namesOneHost, serverOptions } from '../platform/listen.ts';
import { createLog, type Log } from '../platform/log.ts';
import { ResponseOrder } from '../platform/response-order.ts';
import { startTracing, stopTracing, tracing } from '../platform/tracing.ts';
import { connectProducer, connectWorker, type QueueConnection } from '../queue/connection.ts';
import { type Installation, joinInstallation } from '../queue/installation.ts';
import { addLossMetric, printedLoss } from '../queue/loss.ts';
import type { Oldest } from '../queue/oldest.ts';
import { openProducer, type ShardedProducer } from '../queue/producer.ts';
import { requireRedisSettings } from '../queue/redis.ts';
import { everyStatementByIndex, openPool, type Pool } from '../store/database.ts';
import { WriteRefusals } from '../store/write-refusals.ts';
import { type Dependencies, databaseUrl, directDatabaseUrl, watchDependencies } from './dependencies.ts';
import { type Heartbeat, type Pulse, startHeartbeat } from './heartbeat.ts';
import type { Host } from './host.ts';
import { keepLastWords } from './last-words.ts';
import { addClockMetric, addDependencyMetric, addSpanMetric, createMetricsGuard } from './metrics.ts';
import { type ProcessHealth, readyzProblems } from './readyz.ts';

/** The part of a Postgres store that every process needs. */
interface Store {
  pool: Pool;
  stop(): Promise<void>;
}

/** The common parts of a process: its settings, its log and its two stores. */
interface OpenProcess<S extends Store = Store> {
  /** Id of the process, a UUID. */
  id: string;
  config: Config;
  log: Log;
  /** URL of the Postgres server. */
  url: string;
  /** URL of the same server for connections that need a session of their own. */
  directUrl: string;
  database: S;
  /** Connection to the queue. */
  connection: QueueConnection;
  /** Running services in the order of their start. A signal stops them in reverse order. Add each service that you start. */
  services: Service[];
}

/**
 * Opens the common parts of every process: starts tracing if it is enabled, and opens both stores without waiting for
 * them, unless the host shares its own. The host stops them in reverse order.
 *
 * @param open opens Postgres. A worker opens it without Prisma
 * @param connect connects to the queue. Default: a connection for producers, which fails immediately while the queue is
 * unavailable
 */
export async function openProcess<S extends Store>(
  { host, name }: { host: Host; name: 'web' | 'worker' | 'sync' | 'board' },
  open: (url: string, config: Config) => S,
  connect: typeof connectProducer = connectProducer,
): Promise<OpenProcess<S>> {
  const { config } = host;
  const id = newId();
  if (!host.stores) keepLastWords(id);
  await startTracing(config, { name, id, version: packageVersion });
  const log = createLog(name, config.LOG_LEVEL, { format: config.LOG_FORMAT, id, to: host.logTo });
  tracing?.setLog(log);
  const url = databaseUrl(config);
  const directUrl = directDatabaseUrl(config);
  const { database, connection } = host.stores
    ? // The pool of the host has all features that a process needs.
      { ...host.stores, database: host.stores.database as unknown as S }
    : { database: open(url, config), connection: connect(config, url) };
  const services: Service[] = [
    // Tracing stops last, because the other services still create spans.
    { name: 'tracing', stop: () => stopTracing(config) },
  ];
  if (!host.stores) {
    services.push({ name: 'database', stop: () => database.stop() });
    services.push({ name: 'queue connection', stop: () => connection.stop() });
  }
  // Other processes have only connections for health checks and metrics, so they need no delay.
  const delay = name === 'web' || name === 'board' ? config.SHUTDOWN_DELAY_MS : 0;
  host.stopAtEnd(services, log, { deadline: config.SHUTDOWN_TIMEOUT_MS, delay });
  return { id, config, log, url, directUrl, database, connection, services };
}

/** Addresses of the status servers. */
const statusAddress = {
  worker: ({ WORKER_HOST, WORKER_PORT }: Config) => ({ host: WORKER_HOST, port: WORKER_PORT }),
  sync: ({ SYNC_HOST, SYNC_PORT }: Config) => ({ host: SYNC_HOST, port: SYNC_PORT }),
};

/** Common parts of the processes in workers/, which read the queue, add to it, and are members of the installation. */
interface WorkingProcess extends Omit<OpenProcess, 'database'> {
  pool: Pool;
  dependencies: Dependencies;
  /** Connection of the producer. It fails immediately while the queue is unavailable. */
  producerConnection: QueueConnection;
  producer: ShardedProducer;
  installation: Installation;
  /** Receives the results of the writes of the process's work. */
  writes: WriteRefusals;
  /** Writes the heartbeat row soon instead of at the next heartbeat. */
  beatSoon(): void;
  /** Marks the process as working. It is ready while its work reports no entries in `WorkStatus`. */
  ready(line: object, work?: WorkStatus): void;
}

/** Reports about the current work. The process is not ready while one of them has an entry. */
interface WorkStatus {
  /** Envelopes that wait too long. */
  stuck?: Oldest['tooOld'];
  /** Lanes whose next envelope has a version that this release cannot read. */
  unreadable?(): { lane: number; version: number; reads: number }[];
  /** Jobs without progress for longer than their limit. */
  overdue?(): { kind: string; id: string; seconds: number }[];
}

interface WorkingOptions extends Pick<Pulse, 'objects' | 'lanes' | 'held'> {
  registry: Registry;
}

/**
 * Opens the common parts of `worker` and `sync`. The status server listens immediately and reports missing
 * dependencies. Resolves when both stores are available with their tables, and the process is a member of its
 * installation.
 * @throws {ConfigError} if a setting is wrong, if Redis has an eviction policy, or if the installation has another
 * number of lanes
 */
export async function openWorkingProcess(
  host: Host,
  name: keyof typeof statusAddress,
  { registry, ...pulse }: WorkingOptions,
): Promise<WorkingProcess> {
  const { database, ...opened } = await openProcess({ host, name }, openWorkingPool, connectWorker);
  const { id, config, log, url, connection, services } = opened;
  const { pool } = database;
  const producerConnection = host.stores?.connection ?? connectProducer(config, url);
  const producer = openProducer(producerConnection, { pool, timeout: config.QUEUE_TIMEOUT_MS, log });
  if (!host.stores)
    services.push({ name: 'connection of the producer', stop: () => producerConnection.stop() });
  services.push({ name: 'producer', stop: () => producer.stop() });
  const pings = { producer: producer.ping };
  const dependencies = watchDependencies({ pool, connection, pings, log });
  services.push(dependencies);
  let workStatus: (() => CurrentStatus) | undefined;
  let rejectsWrites: Heartbeat['rejectsWrites'] = () => undefined;
  let loss: Installation['loss'] = () => undefined;
  const address = statusAddress[name](config);
  let at: string | null = null;
  if (address.port > 0) {
    const server = await startStatusServer(address, {
      ...{ metricsToken: config.METRICS_TOKEN, registry, log, check: dependencies.check },
      health: {
        ...{ queue: connection.kind, dependencies, loss: () => loss() },
        rejectsWrites: () => rejectsWrites(),
      },
      workStatus: () => workStatus?.(),
    });
    services.push(server);
    at = server.at;
  }
  await requireRedisSettings(connection, log);
  const { additions } = producer;
  const installation = await dependencies.whenComplete(() =>
    joinInstallation({ name, config, pool, connection, log, additions, onLoss: producer.forget }),
  );
  const { missing } = dependencies;
  const writes = new WriteRefusals(() => heartbeat.soon());
  const refusal = () => writes.refusal;
  const heartbeat = startHeartbeat(
    name,
    { id, pool, log },
    { ...pulse, missing, refusal, address: () => at },
  );
  rejectsWrites = heartbeat.rejectsWrites;
  dependencies.onChange(heartbeat.soon);
  services.push(installation, heartbeat);
  addLossMetric(registry, installation.loss);
  addDependencyMetric(registry, missing);
  addClockMetric(registry, heartbeat.clockSkew);
  addSpanMetric(registry);
  return {
    ...{ ...opened, pool, dependencies, producerConnection, producer, installation, writes },
    beatSoon: heartbeat.soon,
    ready(line, work) {
      loss = installation.loss;
      workStatus = () => ({
        stuck: work?.stuck?.() ?? [],
        unreadable: work?.unreadable?.() ?? [],
        overdue: work?.overdue?.() ?? [],
      });
      log.info({ ...line, queue: connection.kind }, 'ready');
    },
  };
}

function openWorkingPool(url: string, { DATABASE_POOL_SIZE, LOCK_DURATION_MS }: Config): Store {
  const pool = openPool(url, DATABASE_POOL_SIZE, {
    // A process that freezes in a transaction must not keep its locks.
    session: { idle_in_transaction_session_timeout: LOCK_DURATION_MS, ...everyStatementByIndex },
  });
  return { pool, stop: () => pool.end() };
}

const JSON_TYPE = 'application/json; charset=utf-8';

/** The status of a process that works. */
interface CurrentStatus {
  /** Envelopes that wait too long. The process is not ready while there are any. */
  stuck: ReturnType<Oldest['tooOld']>;
  /** Lanes with an unreadable envelope. The process is not ready while there are any. */
  unreadable: ReturnType<NonNullable<WorkStatus['unreadable']>>;
  /** Jobs without progress. The process is not ready while there are any. */
  overdue: ReturnType<NonNullable<WorkStatus['overdue']>>;
}

interface StatusServerOptions {
  metricsToken: string;
  registry: Registry;
  health: ProcessHealth;
  /** Returns the missing dependencies. */
  check: Dependencies['check'];
  log: Log;
  /** Undefined until the process works. Until then it is not ready. */
  workStatus(): CurrentStatus | undefined;
}

/**
 * Serves /healthz, /readyz and /metrics of the process. If another process of the machine uses the port, the server
 * listens on a free port, and the heartbeat reports it.
 */
async function startStatusServer(
  { host, port }: { host: string; port: number },
  { metricsToken, registry, health, check, log, workStatus }: StatusServerOptions,
): Promise<Service & { at: string | null }> {
  const pages: Record<string, () => Promise<[status: number, type: string, body: string]>> = {
    '/healthz': async () => [200, JSON_TYPE, '{"message":"alive"}'],
    '/metrics': async () => [200, registry.contentType, await registry.metrics()],
    '/readyz': async () => {
      const missing = await check();
      const loss = health.loss();
      const { stuck, unreadable, overdue } = workStatus() ?? {};
      const works =
        missing.length === 0 && [stuck, unreadable, overdue].every((entries) => entries?.length === 0);
      const leaving = isLeaving();
      const ready = works && !leaving;
      const body = JSON.stringify({
        message: ready ? 'ready' : 'not ready',
        missing,
        ...(loss && { loss: printedLoss(loss) }),
        ...(stuck?.length && { stuck }),
        ...(unreadable?.length && { unreadable }),
        ...(overdue?.length && { overdue }),
        ...(leaving && { leaving }),
        ...readyzProblems(health, missing, { stuck, unreadable, overdue }),
      });
      return [ready ? 200 : 503, JSON_TYPE, body];
    },
  };
  const mayReadMetrics = createMetricsGuard(metricsToken);
  const order = new ResponseOrder();
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { url = '', method = '', headers } = request;
    // Compare exactly, so that another spelling of the URL cannot bypass the rule of a proxy.
    const page = Object.hasOwn(pages, url) ? pages[url]! : undefined;
    const isClosed = url === '/metrics' && !mayReadMetrics(headers.authorization);
    const isRead = ['GET', 'HEAD'].includes(method);
    const refused = !namesOneHost(request) ? 400 : !page ? 404 : !isRead ? 405 : isClosed ? 401 : undefined;
    if (refused === 405) response.setHeader('Allow', 'GET, HEAD');
    if (refused === 401) response.setHeader('WWW-Authenticate', 'Bearer');
    try {
      const [status, type, body] = refused
        ? [refused, JSON_TYPE, JSON.stringify({ message: STATUS_CODES[refused] })]
        : await page!();
      response.writeHead(status, { 'Content-Type': type }).end(body);
    } catch (error) {
      // Without this, a metric that cannot be collected would end the process.
      log.warn({ err: error, page: url }, 'request to /healthz, /readyz or /metrics failed');
      response
        .writeHead(500, { 'Content-Type': JSON_TYPE })
        .end(JSON.stringify({ message: STATUS_CODES[500] }));
    }
  };
  const server = createServer(serverOptions, order.inOrder(answer));
  limitConnections(server);
  const watched = order.watch(server);
  const listening = await new Promise<boolean>((resolve) => {
    server.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' && !server.listening) return void server.listen(0, host);
      log.warn({ err: error, port }, 'health and metrics are not served: the port could not be opened');
      resolve(false);
    });
    server.on('listening', () => resolve(true));
    server.listen(port, host);
  });
  const at = listening ? addressOf(server) : null;
  if (listening && (server.address() as AddressInfo).port !== port)
    log.info({ port, at }, 'port was in use; health and metrics are served at another address');
  return {
    name: 'status server',
    at,
    async stop() {
      await watched.stop();
      if (listening) await new Promise((resolve) => server.close(resolve));
    },
  };
}
