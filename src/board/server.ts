import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Lacking, Readings } from '../checks/readings.ts';
import { isOutage, ProblemWatch } from '../checks/watch.ts';
import { usersDelete } from '../operations/users.delete.ts';
import type { Config } from '../platform/config.ts';
import type { Service } from '../platform/lifecycle.ts';
import { addressOf, limitConnections, serverOptions, whyNotListening } from '../platform/listen.ts';
import { createStrangersLog, type Log } from '../platform/log.ts';
import { ResponseOrder } from '../platform/response-order.ts';
import { traceRequests } from '../platform/tracing.ts';
import { createRenderer } from '../preferences/renderer.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { createLaneDepths } from '../queue/depth.ts';
import { createEffects } from '../queue/effects.ts';
import { createGroupCommit } from '../queue/enqueue.ts';
import { type LaneProducer, type LayoutSettings, laneCount } from '../queue/lanes.ts';
import { createWaitingSearch } from '../queue/waiting-search.ts';
import { entries, type Noun } from '../resources/index.ts';
import type { Database } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { listReports } from '../store/processes.ts';
import { createAccounts } from './accounts.ts';
import { createBoardApp } from './app.ts';
import { createBadges } from './badges.ts';
import { type ConsoleServices, createConsole, type Page, type PageServices } from './console.ts';
import { createFleet } from './fleet.ts';
import { recordHistory } from './history.ts';
import { createLive } from './live.ts';
import { createFailedSignIns, createLockouts } from './lockouts.ts';
import type { OidcConfig } from './openid-connect.ts';
import { accountExtras } from './pages/accounts.ts';
import { auditPages } from './pages/audit.ts';
import { deadLetterPages } from './pages/dead-letter.ts';
import { deadLetterListPages } from './pages/dead-letters.ts';
import { groupExtras } from './pages/groups.ts';
import { healthPages } from './pages/health.ts';
import { historyPages } from './pages/history.ts';
import { permissionSetExtras, teamExtras } from './pages/holders.ts';
import { keyExtras } from './pages/keys.ts';
import { preferenceCenterExtras, preferenceCenterPages } from './pages/preference-centers.ts';
import { refusedObjectExtras, refusedObjectPages } from './pages/refused-objects.ts';
import { requestExtras, requestPages } from './pages/requests.ts';
import { searchPages } from './pages/search.ts';
import { segmentPages } from './pages/segments.ts';
import { sessionPages } from './pages/sign-in.ts';
import { integrationExtras, syncPages } from './pages/sync.ts';
import { userPages } from './pages/user.ts';
import { userActionPages } from './pages/user-actions.ts';
import { userListPages } from './pages/users.ts';
import { workspaceExtras } from './pages/workspaces.ts';
import { createQueueBoard } from './queues.ts';
import { type Extras, resourcePages } from './resource-pages.ts';
import { createOperatorSessions } from './sessions.ts';
import type { Account } from './sign-in.ts';

interface BoardSettings {
  config: OidcConfig & LayoutSettings & Config;
  account: Account;
  log: Log;
}

/** Connections of the console. */
interface BoardStores {
  database: Database;
  connection: QueueConnection;
  /** Producer for this installation's lanes. */
  producer: LaneProducer;
  /** The data loss that the queue reported and no operator has confirmed yet. */
  loss(): QueueLoss | undefined;
}

/** State of the console's process that the stores do not contain. */
interface BoardSelf {
  /** Id of this process in the list of processes; absent if it sends no heartbeats. */
  id?: string;
  /** Dependencies that this process needs and currently cannot use, with name and start time. */
  lacking(): Lacking[];
  /** Whether Postgres answers and refuses every write. Default: it accepts them. */
  isReadOnly?(): boolean;
  /** The reason why Postgres rejected the last heartbeat; absent if the process sends no heartbeats. */
  rejectsWrites?(): Readings['rejectsWrites'];
  /** Difference to the clock of Postgres in seconds; absent if it is not measured. */
  clockSkew?(): number | undefined;
}

export interface Board extends Service {
  /** Host and port at which other machines reach it, for example `console-1:3001`. */
  address: string;
  /** Base URL of the console, without a trailing slash. */
  url: string;
  /** Reads the problems for /readyz and the log now instead of at the next interval. */
  checkSoon(): void;
}

/**
 * Serves the console.
 * @throws {Error} naming the setting when the port is taken.
 */
export async function startBoard(
  { config, account, log }: BoardSettings,
  { database, connection, producer, loss }: BoardStores,
  self: BoardSelf,
): Promise<Board> {
  const { id = '', lacking, isReadOnly = () => false } = self;
  const { rejectsWrites = () => undefined, clockSkew = () => undefined } = self;
  const queues = createQueueBoard(connection, laneCount(config), loss);
  const strangers = createStrangersLog(log);
  const operators = createOperatorSessions();
  const services = createServices({
    ...{ database, connection, producer, operators, config, loss, lacking, log },
    rejectsWrites,
  });
  const problemWatch = new ProblemWatch({
    ...{ self: { name: 'board', id }, log },
    read: services.fleet.read,
    readReports: () => listReports(database.pool),
    isOutage: () => isOutage({ lacking, isReadOnly }, rejectsWrites),
  });
  const failures = createFailedSignIns(database, log);
  const live = createLive({ ...services, log });
  const parts = {
    pages: createConsole(pages, services),
    live,
    queues: queues.router,
    maskedQueues: queues.maskedRouter,
    ready: connection.ready,
    health: {
      ...{ queue: connection.kind, dependencies: { lacking, isReadOnly }, rejectsWrites, loss },
      problems: problemWatch.problems,
    },
    clockSkew,
    metricsToken: config.METRICS_TOKEN,
  };
  const app = createBoardApp(parts, {
    ...{ account, accounts: createAccounts(database, log), operators },
    ...{ failures, lockouts: createLockouts(), oidc: config, log, strangers },
  });
  const order = new ResponseOrder();
  const handle = traceRequests<IncomingMessage>(app, { throughout: true });
  const server = createServer(serverOptions, order.inOrder(handle));
  limitConnections(server);
  const watched = order.watch(server);
  server.listen(config.BOARD_PORT, config.BOARD_HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    await Promise.all([live.stop(), problemWatch.stop(), queues.stop(), services.stop(), failures.stop()]);
    const { BOARD_PORT, BOARD_HOST } = config;
    const why = whyNotListening(error as Error, ['BOARD_PORT', BOARD_PORT], ['BOARD_HOST', BOARD_HOST]);
    throw new Error(why, { cause: error });
  }
  const history = recordHistory(database.pool, services.fleet, log);
  const { address, family, port } = server.address() as AddressInfo;
  return {
    name: 'board',
    address: addressOf(server),
    checkSoon: problemWatch.soon,
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      await watched.stop();
      await live.stop();
      await problemWatch.stop();
      await history.stop();
      // An open page keeps its connection for its next poll.
      server.closeIdleConnections();
      setTimeout(() => server.closeAllConnections(), 1000).unref();
      await closed;
      await queues.stop();
      await services.stop();
      await failures.stop();
      await strangers.stop();
    },
  };
}

/** Page parts that are not derived from the resource descriptions. */
const extras: Partial<Record<Noun, Extras<{ id: string }>>> = {
  accounts: accountExtras,
  groups: groupExtras,
  integrations: integrationExtras,
  keys: keyExtras,
  'permission-sets': permissionSetExtras,
  'preference-centers': preferenceCenterExtras,
  'refused-objects': refusedObjectExtras,
  requests: requestExtras,
  teams: teamExtras,
  workspaces: workspaceExtras,
};

const described = (
  await Promise.all(entries.map(async ([noun, { load }]) => resourcePages(await load(), extras[noun])))
).flat();

/** Every route of the console. */
export const pages: Page<PageServices>[] = [
  ...healthPages,
  ...historyPages,
  ...userListPages,
  ...userPages,
  ...userActionPages,
  ...requestPages,
  ...deadLetterListPages,
  ...refusedObjectPages,
  ...deadLetterPages,
  ...syncPages,
  ...segmentPages,
  ...preferenceCenterPages,
  ...described,
  ...auditPages,
  ...sessionPages,
  ...searchPages,
];

/** Limits for enqueued actions. The console does not batch: each user acts alone. */
const GROUP_COMMIT = {
  maxEnvelopeObjects: 1000,
  maxPendingObjects: 10_000,
  maxPendingBytes: 64 * 1024 * 1024,
  backlog: () => 0,
};

/** Milliseconds that the health page waits for lane depths if the queue hangs. */
const DEPTH_TIMEOUT_MS = 1500;

/** Creates the services that pages need beyond the stores. */
function createServices(given: ConsoleServices): PageServices & Pick<Service, 'stop'> {
  const { connection, config, producer } = given;
  const waiting = createWaitingSearch(connection.laneStore, laneCount(config), config.QUEUE_TIMEOUT_MS);
  const renderer = createRenderer({ maxProcesses: 1 });
  const depths = createLaneDepths(connection.laneStore, {
    lanes: laneCount(config),
    timeout: DEPTH_TIMEOUT_MS,
  });
  const fleet = createFleet(given);
  return {
    ...given,
    fleet,
    badges: createBadges({ fleet, pool: given.database.pool }),
    waiting,
    depths,
    renderer,
    operations: {
      remove: usersDelete(config.SERVICE_ID_FIELD),
    },
    queue: createGroupCommit(producer, { lanes: config.LANES, ...GROUP_COMMIT }),
    effects: createEffects(given.database.pool),
    stop: async () => void (await renderer.stop()),
  };
}
