import { randomBytes } from 'node:crypto';
import { startBoard } from './board/server.ts';
import { readConfig } from './config.ts';
import { databaseUrl } from './database-url.ts';
import { runProcess, stopOnSignal } from './lifecycle.ts';
import { createLog } from './log.ts';
import { connectProducer } from './queue/connection.ts';

/** The process `board`: Bull Board over the lanes and the dead letters, behind a sign-in. */
async function main(): Promise<void> {
  const config = readConfig();
  const log = createLog('board', config.LOG_LEVEL);
  // The dashboard needs no database but the one that the queue may live in.
  const connection = connectProducer(config, config.REDIS_URL ? '' : databaseUrl(config));
  const password = config.BOARD_PASSWORD || randomBytes(12).toString('base64url');
  const account = { user: config.BOARD_USER, password };
  const board = await startBoard({ config, account, connection, log });
  stopOnSignal([{ name: 'queue connection', stop: connection.stop }, board], log, config.SHUTDOWN_TIMEOUT_MS);
  log.info({ url: board.url }, 'ready');
  // Not a log line: it must be seen at every log level, and be copied without quotes.
  if (!config.BOARD_PASSWORD) {
    const line = `Dashboard: ${board.url}  user: ${account.user}  password: ${password}`;
    process.stdout.write(`${line}  (until the next start; BOARD_PASSWORD sets one)\n`);
  }
}

runProcess('board', main);
