import { type Poller, poll, rest } from '../platform/poll.ts';
import { beginWholeSession, type Pool, PostgresClient } from './database.ts';
import { type SessionSettings, UnsupportedPooling } from './pooling.ts';

/** An advisory lock, by what it is about. */
export interface AdvisoryLock {
  /** SQL of its number, and the parameters in that. */
  number: string;
  values?: unknown[];
  /** Whom it keeps away, for a person who reads that it was lost. */
  keepsAway: string;
}

/** Says that nobody else has the lock: it ends with its transaction, whoever ends that. */
export interface SessionLease {
  /** Aborted as soon as this process learns that the session is lost. */
  signal: AbortSignal;
  /** Asks the session itself. @throws {Error} when it is lost */
  confirm(): Promise<void>;
}

/** The transaction rests while `work` runs, for as long as that takes. It has no snapshot, so that vacuum goes on. */
const begin = 'begin; set local idle_in_transaction_session_timeout = 0';

/**
 * Runs `work` while nobody else has the advisory lock. A transaction that does nothing else holds the lock, so that it
 * also holds behind a pooler that hands out servers by transaction. It ends with the connection, and so with the process,
 * however that ends. A connection that was lost is not used again.
 *
 * @returns undefined when somebody else has it
 */
export async function aloneWith<T>(
  pool: Pool,
  { number, values = [], keepsAway }: AdvisoryLock,
  work: (lease: SessionLease) => Promise<T>,
): Promise<T | undefined> {
  const session = await pool.connect();
  const lost = new AbortController();
  let broken: Error | undefined;
  const lose = (cause?: Error) => {
    broken ??= new Error(`the session that keeps away ${keepsAway} was lost`, { cause });
    lost.abort(broken);
  };
  session.on('error', lose);
  session.on('end', lose);
  async function confirm(): Promise<void> {
    // A transaction that has failed has its lock until it ends: this one runs nothing that can fail.
    await session.query('select').catch(lose);
    lost.signal.throwIfAborted();
  }
  try {
    await session.query(begin);
    const { rows } = await session.query<{ mine: boolean }>(
      `select pg_try_advisory_xact_lock(${number}) as mine`,
      values,
    );
    return rows[0]!.mine ? await work({ signal: lost.signal, confirm }) : undefined;
  } finally {
    await session.query('rollback').catch(lose);
    session.off('error', lose);
    session.off('end', lose);
    session.release(broken);
  }
}

/** Milliseconds between two reports of a Postgres that does not answer. */
const REPORT_INTERVAL = 30_000;

interface HeldSession {
  databaseUrl: string;
  /** What needs the session, for an operator who reads that it cannot be had. */
  what: string;
  settings?: SessionSettings;
  /** Milliseconds that the connection, and each answer on it, may take; absent: any. */
  patience?: number;
  /** Milliseconds between two heartbeats on the connection while it is held. */
  beat: number;
  /** Milliseconds before another try, when the session was lost or was not wanted. */
  retry: number | (() => number);
  /** Each session from its beginning. What it does last ends when `lost` resolves; when it returns, the session ends. */
  hold(client: PostgresClient, session: Held): Promise<void>;
  /** At most every 30 s: there is no session to be had. */
  report(error: unknown): void;
}

interface Held {
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
        // Another attempt meets the same pooler.
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
      await Promise.race([client.connect().then(() => beginWholeSession(client, what)), lost]);
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
