import { type Poller, poll, rest } from '../platform/poll.ts';
import { beginWholeSession } from './database.ts';
import { type SessionSettings, UnsupportedPooling } from './pooling.ts';
import { PostgresClient } from './postgres-client.ts';

/** Milliseconds between two reports that Postgres does not respond. */
const REPORT_INTERVAL = 30_000;

interface HeldSession {
  databaseUrl: string;
  /** Feature that needs the session, for the error message if it cannot be opened. */
  what: string;
  settings?: SessionSettings;
  /** Timeout in milliseconds of the connection and of each query on it. Absent: no limit. */
  patience?: number;
  /** Milliseconds between two heartbeats on the connection. */
  beat: number;
  /** Milliseconds before the next attempt, after the session was lost or ended. */
  retry: number | (() => number);
  /**
   * Called for each session after it was opened. It must return soon after `lost` resolves; the session ends
   * when it returns.
   */
  hold(client: PostgresClient, session: Held): Promise<void>;
  /** Called at most every 30 s while no session can be opened. */
  report(error: unknown): void;
}

interface Held {
  /** Resolves when the connection is lost or does not respond, or when the holder is stopped. */
  lost: Promise<void>;
  isOver(): boolean;
}

/**
 * Holds a session: one dedicated connection to Postgres that is reopened whenever it is lost. For features
 * that depend on a session, such as advisory locks and LISTEN.
 *
 * @returns a function that ends the session and resolves when it has ended
 */
export function holdSession({
  databaseUrl,
  what,
  settings = {},
  patience,
  beat,
  retry,
  hold,
  report,
}: HeldSession): () => Promise<void> {
  const stopping = new AbortController();
  let reported = Number.NEGATIVE_INFINITY;
  const running = run();

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (performance.now() - reported > REPORT_INTERVAL) {
          reported = performance.now();
          report(error);
        }
        // A retry would reach the same pooler.
        if (error instanceof UnsupportedPooling) return;
      }
      await rest(typeof retry === 'number' ? retry : retry(), stopping.signal);
    }
  }

  async function once(): Promise<void> {
    const client = new PostgresClient({
      ...{ connectionString: databaseUrl, keepAlive: true, session: settings },
      ...{ connectionTimeoutMillis: patience, query_timeout: patience },
    });
    let over = false;
    let markLost = () => {};
    const lost = new Promise<void>((resolve) => {
      markLost = () => {
        over = true;
        resolve();
      };
    });
    client.once('end', markLost);
    // A connection that the server ends emits two errors; an error without a listener would end the process.
    client.on('error', markLost);
    stopping.signal.addEventListener('abort', markLost);
    let beating: Poller | undefined;
    try {
      // After a stop, do not wait for a server that does not respond.
      await Promise.race([client.connect().then(() => beginWholeSession(client, what)), lost]);
      if (over) return;
      beating = keepBeating(client, beat, markLost);
      await hold(client, { lost, isOver: () => over });
    } finally {
      void beating?.stop();
      stopping.signal.removeEventListener('abort', markLost);
      await client.end().catch(() => {});
    }
  }

  return async () => {
    stopping.abort();
    await running;
  };
}

/** Sends a heartbeat at this interval. The next one is only sent after the previous one was answered. */
function keepBeating(client: PostgresClient, every: number, markLost: () => void): Poller {
  return poll(every, () => client.query('select').then(() => {}), markLost);
}
