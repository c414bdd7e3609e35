import { randomBytes } from 'node:crypto';
import { startBoard } from './board/server.ts';
import { readConfig } from './config.ts';
import { databaseUrl } from './database-url.ts';
import { runProcess, stopOnSignal } from './lifecycle.ts';
import { createLog } from './log.ts';
import { connectProducer } from './queue/connection.ts';
import { openDatabase } from './store/database.ts';

/** The process `board`: Bull Board over the lanes and the dead letters, behind a sign-in. */
async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog('board', config.LOG_LEVEL);
  const url = databaseUrl(config);
  const connection = connectProducer(config, url);
  // Of accounts. Whoever signs in as BOARD_USER gets in without it.
  const database = openDatabase(url, 2);
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const account = { user: config.BOARD_USER, password };
  const board = await startBoard({ config, account, connection, database, log });
  stopOnSignal(
    [{ name: 'database', stop: database.stop }, { name: 'queue connection', stop: connection.stop }, board],
    log,
    config.SHUTDOWN_TIMEOUT_MS,
  );
  log.info({ url: board.url }, 'ready');
  // Not a log line: it must be seen at every log level, and be copied without quotes.
  if (!config.BOARD_PASSWORD) {
    const line = `Dashboard: ${board.url}  user: ${account.user}  password: ${password}`;
    process.stdout.write(`${line}  (until the next start; BOARD_PASSWORD sets one)\n`);
  }
}

runProcess('board', main);
