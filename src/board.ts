import { randomBytes } from 'node:crypto';
import { startBoard } from './board/server.ts';
import { runProcess } from './platform/lifecycle.ts';
import { watchDependencies } from './processes/dependencies.ts';
import { startHeartbeat } from './processes/heartbeat.ts';
import { openProcess } from './processes/process.ts';
import { joinInstallation } from './queue/installation.ts';
import type { QueueLoss } from './store/installation.ts';
import { openDatabase } from './store/open-database.ts';

/** The process `board`: Bull Board over the lanes and the dead letters, behind a sign-in. */
async function main(): Promise<void> {
  // Of accounts, and of what the queue has lost. Whoever signs in as BOARD_USER gets in without it.
  const { config, log, database, connection, services } = openProcess('board', (url) => openDatabase(url, 2));
  const { pool } = database;
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const account = { user: config.BOARD_USER, password };
  const dependencies = watchDependencies({ pool, connection, log });
  services.push(dependencies);
  const { missing } = dependencies;
  let loss: () => QueueLoss | undefined = () => undefined;
  const board = await startBoard({
    ...{ config, account, connection, database, missing, log },
    loss: () => loss(),
  });
  services.push(board);
  log.info({ url: board.url }, 'ready');
  // Not a log line: it must be seen at every log level, and be copied without quotes.
  if (!config.BOARD_PASSWORD) {
    const line = `Dashboard: ${board.url}  user: ${account.user}  password: ${password}`;
    process.stdout.write(`${line}  (until the next start; BOARD_PASSWORD sets one)\n`);
  }
  const installation = await dependencies.whenComplete(() =>
    joinInstallation({ name: 'board', config, pool, connection, log }),
  );
  loss = installation.loss;
  const self = { missing, objects: () => 0, address: () => board.url.replace('http://', '') };
  services.push(installation, startHeartbeat('board', { pool, log }, self));
}

runProcess('board', main);
