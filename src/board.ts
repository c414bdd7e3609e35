import { randomBytes } from 'node:crypto';
import { startBoard } from './board/server.ts';
import { watchDependencies } from './processes/dependencies.ts';
import { type Heartbeat, startHeartbeat } from './processes/heartbeat.ts';
import { type Host, runMain } from './processes/host.ts';
import { openProcess } from './processes/process.ts';
import { joinInstallation } from './queue/installation.ts';
import { type LaneProducer, QueueUnavailable } from './queue/lanes.ts';
import { openProducer } from './queue/producer.ts';
import type { QueueLoss } from './store/installation.ts';
import { openDatabase } from './store/open-database.ts';
import { BOARD_CONNECTIONS } from './store/pool-sizes.ts';

/** Milliseconds that a page waits for a connection to Postgres, and for a statement. */
const POSTGRES_TIMEOUTS = { connection: 3000, statement: 8000 };

/** Starts the process `board`: the console, and Bull Board for the queues. Both require a sign-in. */
async function main(host: Host): Promise<void> {
  // The console starts before Postgres is available, because BOARD_USER can sign in without Postgres.
  const { id, config, log, database, connection, services } = await openProcess(
    { host, name: 'board' },
    (url, { DATABASE_POOL_SIZE }) =>
      openDatabase(url, Math.min(BOARD_CONNECTIONS, DATABASE_POOL_SIZE), {
        patience: POSTGRES_TIMEOUTS,
        // Postgres cancels a statement when the page stops waiting for it.
        session: { statement_timeout: POSTGRES_TIMEOUTS.statement },
      }),
  );
  const { pool } = database;
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const account = { user: config.BOARD_USER, password };
  const lanes = openProducer(connection, { pool, timeout: config.QUEUE_TIMEOUT_MS, log });
  const dependencies = watchDependencies({ pool, connection, pings: { producer: lanes.ping }, log });
  services.push(dependencies);
  const { missing, lacking } = dependencies;
  let rejectsWrites: Heartbeat['rejectsWrites'] = () => undefined;
  let loss: () => QueueLoss | undefined = () => undefined;
  let clockSkew: () => number | undefined = () => undefined;
  const { placing, homeOf } = lanes;
  services.push({ name: 'producer', stop: lanes.stop });
  const refuse = () => Promise.reject(new QueueUnavailable('the number of lanes is not known yet'));
  let producer: LaneProducer = { add: refuse, ...(placing && { placing: { ...placing, addTo: refuse } }) };
  const guarded: LaneProducer = {
    add: (entries) => producer.add(entries),
    homeOf,
    ...(placing && {
      placing: { ...placing, addTo: (shard, entries) => producer.placing!.addTo(shard, entries) },
    }),
  };
  const board = await startBoard(
    { config, account, log },
    { database, connection, producer: guarded, loss: () => loss() },
    {
      ...{ id, lacking, isReadOnly: dependencies.isReadOnly },
      ...{ rejectsWrites: () => rejectsWrites(), clockSkew: () => clockSkew() },
    },
  );
  services.push(board);
  log.info({ url: board.url }, 'ready');
  // Printed instead of logged, so that it appears at every log level and can be copied without quotes.
  if (!config.BOARD_PASSWORD) {
    const line = `Console: ${board.url}  user: ${account.user}  password: ${password}`;
    process.stdout.write(`${line}  (until the next start; BOARD_PASSWORD sets one)\n`);
  }
  const installation = await dependencies.whenComplete(() =>
    joinInstallation({
      name: 'board',
      config,
      pool,
      connection,
      log,
      additions: lanes.additions,
      onLoss: lanes.forget,
    }),
  );
  producer = installation.guard(lanes);
  loss = installation.loss;
  const self = { missing, objects: () => 0, address: () => board.address };
  const heartbeat = startHeartbeat('board', { id, pool, log }, self);
  dependencies.onChange(() => {
    heartbeat.soon();
    board.checkSoon();
  });
  clockSkew = heartbeat.clockSkew;
  rejectsWrites = heartbeat.rejectsWrites;
  services.push(installation, heartbeat);
}

runMain('board', main);
