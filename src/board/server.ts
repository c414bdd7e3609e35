import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Config } from '../platform/config.ts';
import type { Service } from '../platform/lifecycle.ts';
import { limitConnections, serverOptions, whyNotListening } from '../platform/listen.ts';
import { createStrangersLog, type Log } from '../platform/log.ts';
import { traceRequests } from '../platform/tracing.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { LaneProducer } from '../queue/lanes.ts';
import { type LayoutSettings, laneCount } from '../queue/shards.ts';
import type { Database } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { createAccounts } from './accounts.ts';
import { createBoardApp } from './app.ts';
import { createConsole } from './console.ts';
import { recordHistory } from './history.ts';
import { createLive } from './live.ts';
import { createLockouts } from './lockouts.ts';
import type { OidcConfig } from './openid-connect.ts';
import { createServices, pages } from './pages/index.ts';
import { createQueueBoard } from './queues.ts';
import { createFailedSignIns, createOperatorSessions } from './sessions.ts';
import type { Account } from './sign-in.ts';

export interface BoardOptions {
  config: OidcConfig &
    LayoutSettings &
    Pick<
      Config,
      'BOARD_HOST' | 'BOARD_PORT' | 'METRICS_TOKEN' | 'SERVICE_ID_FIELD' | 'QUEUE_TIMEOUT_MS' | 'DATA_DIR'
    >;
  account: Account;
  connection: QueueConnection;
  database: Database;
  /** Into the lanes of this installation. */
  producer: LaneProducer;
  /** What the queue has lost and nobody has confirmed. */
  loss(): QueueLoss | undefined;
  /** Of Postgres, in seconds; absent: nobody looks. */
  clockSkew?(): number | undefined;
  /** What the process cannot do without and does not have, by name. */
  missing(): string[];
  log: Log;
}

export interface Board extends Service {
  /** Where it listens, with no slash at the end. */
  url: string;
}

/**
 * Serves the dashboard.
 * @throws {Error} naming the setting when the port is taken.
 */
export async function startBoard({
  config,
  account,
  connection,
  database,
  producer,
  loss,
  clockSkew = () => undefined,
  missing,
  log,
}: BoardOptions): Promise<Board> {
  const queues = createQueueBoard(connection, laneCount(config), loss);
  const strangers = createStrangersLog(log);
  const operators = createOperatorSessions();
  const services = createServices({
    ...{ database, connection, producer, operators, config, loss, missing, log },
  });
  const failures = createFailedSignIns(database.pool, log);
  const live = createLive({ ...services, log });
  const app = createBoardApp({
    pages: createConsole(pages, services),
    live,
    queues: queues.router,
    maskedQueues: queues.maskedRouter,
    ready: connection.ready,
    missing,
    loss,
    clockSkew,
    metricsToken: config.METRICS_TOKEN,
    account,
    accounts: createAccounts(database, log),
    operators,
    failures,
    lockouts: createLockouts(),
    oidc: config,
    log,
    strangers,
  });
  const server = createServer(serverOptions, traceRequests(app, { throughout: true }));
  limitConnections(server);
  server.listen(config.BOARD_PORT, config.BOARD_HOST);
  try {
    await once(server, 'listening');
  } catch (error) {
    await Promise.all([live.stop(), queues.stop(), services.stop(), failures.stop()]);
    const { BOARD_PORT, BOARD_HOST } = config;
    const why = whyNotListening(error as Error, ['BOARD_PORT', BOARD_PORT], ['BOARD_HOST', BOARD_HOST]);
    throw new Error(why, { cause: error });
  }
  const history = recordHistory(database.pool, services.fleet, log);
  const { address, family, port } = server.address() as AddressInfo;
  return {
    name: 'board',
    url: `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`,
    async stop() {
      const closed = once(server, 'close');
      server.close();
      await live.stop();
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
