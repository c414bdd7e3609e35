import { type Poller, poll, rest } from '../platform/poll.ts';
import { PostgresClient } from './database.ts';

/** Milliseconds between two reports of a Postgres that does not answer. */
const REPORT_INTERVAL = 30_000;

export interface HeldSession {
  databaseUrl: string;
  /** Of the connection, beside its address. */
  options?: { options?: string; connectionTimeoutMillis?: number; query_timeout?: number };
  /** Milliseconds between two heartbeats on the connection while it is held. */
  beat: number;
  /** Milliseconds before another try, when the session was lost or was not wanted. */
  retry: number | (() => number);
  /** Each session from its beginning. What it does last ends when `lost` resolves; when it returns, the session ends. */
  hold(client: PostgresClient, session: Held): Promise<void>;
  /** At most every 30 s: there is no session to be had. */
  report(error: unknown): void;
}

export interface Held {
  /** Resolves when the connection is gone or silent, or the holder is told to stop. */
  lost: Promise<void>;
  isOver(): boolean;
}

/**
 * A held session: one connection to Postgres of its own for as long as the process wants it, made again whenever it is
 * lost. For what lives and dies with a session: advisory locks, `listen`.
 *
 * @returns ends the session, and resolves when it has ended
 */
export function holdSession({
  databaseUrl,
  options,
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
      }
      await rest(typeof retry === 'number' ? retry : retry(), stopping.signal);
    }
  }

  async function once(): Promise<void> {
    const client = new PostgresClient({ connectionString: databaseUrl, keepAlive: true, ...options });
    let over = false;
    let giveUp = () => {};
    const lost = new Promise<void>((resolve) => {
      giveUp = () => {
        over = true;
        resolve();
      };
    });
    client.once('end', giveUp);
    // A connection that the server ends reports two errors; one without a listener would end the process.
    client.on('error', giveUp);
    stopping.signal.addEventListener('abort', giveUp);
    let beating: Poller | undefined;
    try {
      // Told to stop, nobody waits for a server that does not answer.
      await Promise.race([client.connect(), lost]);
      if (over) return;
      beating = keepBeating(client, beat, giveUp);
      await hold(client, { lost, isOver: () => over });
    } finally {
      void beating?.stop();
      stopping.signal.removeEventListener('abort', giveUp);
      await client.end().catch(() => {});
    }
  }

  return async () => {
    stopping.abort();
    await running;
  };
}

/** Says so often that the holder is there; what is far away is asked again only when it has answered. */
function keepBeating(client: PostgresClient, every: number, giveUp: () => void): Poller {
  return poll(every, () => client.query('select').then(() => {}), giveUp);
}
