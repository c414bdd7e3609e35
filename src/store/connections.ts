import type { Duplex } from 'node:stream';
import { type Poller, poll, rest } from '../platform/poll.ts';
import { type Connection, type Pool, PostgresClient } from './database.ts';

/** Who holds the place, as a number of 64 bits; the transaction has it until its end. */
const claimStatement = `select pg_try_advisory_xact_lock(hashtextextended('export ' || $1::text, 0)) as claimed`;

/** Every statement of the transaction sees the rows of this moment. */
const momentStatement = 'select now() as moment';

/** The rows as they were at one moment, for reading. */
export interface Snapshot {
  connection: Connection;
  asOf: Date;
}

/**
 * Does something that reads what the store was at one moment, in one transaction that changes nothing. For as long as it
 * takes, Postgres keeps the rows that others replace.
 *
 * @param place of what is written: one process at a time has it
 * @returns undefined when another has the place
 */
export async function inSnapshot<T>(
  pool: Pool,
  place: string,
  read: (snapshot: Snapshot) => Promise<T>,
): Promise<T | undefined> {
  const connection = await pool.connect();
  let broken: Error | undefined;
  try {
    await connection.query('begin isolation level repeatable read read only');
    const { rows: claims } = await connection.query<{ claimed: boolean }>(claimStatement, [place]);
    if (!claims[0]!.claimed) return undefined;
    const { rows } = await connection.query<{ moment: Date }>(momentStatement);
    return await read({ connection, asOf: rows[0]!.moment });
  } finally {
    await connection.query('rollback').catch((error: Error) => {
      broken = error;
    });
    connection.release(broken);
  }
}

/** An advisory lock, by what it is about. */
export interface AdvisoryLock {
  /** SQL of its number, and the parameters in that. */
  number: string;
  values?: unknown[];
  /** Whom it keeps away, for a person who reads that it was lost. */
  keepsAway: string;
}

/** Says that nobody else has the lock: it ends with its session, whoever ends that. */
export interface SessionLease {
  /** Aborted as soon as this process learns that the session is lost. */
  signal: AbortSignal;
  /** Asks the session itself. @throws {Error} when it is lost */
  confirm(): Promise<void>;
}

/**
 * A lease on a session's advisory lock: runs `work` while nobody else has the lock. It ends with the session, and so with
 * the process, however that ends. A connection that was lost, or may still have the lock, is not used again.
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
    await session.query('select').catch(lose);
    lost.signal.throwIfAborted();
  }
  try {
    const { rows } = await session.query<{ mine: boolean }>(
      `select pg_try_advisory_lock(${number}) as mine`,
      values,
    );
    if (!rows[0]!.mine) return undefined;
    try {
      return await work({ signal: lost.signal, confirm });
    } finally {
      await session.query(`select pg_advisory_unlock(${number})`, values).catch(lose);
    }
  } finally {
    session.off('error', lose);
    session.off('end', lose);
    session.release(broken);
  }
}

/** Bytes from which on statements leave at once: the server begins while the next ones are being made. */
const LARGE = 32_768;

/**
 * Sends statements that need no answer of each other, in their order. Small ones leave in one write to the
 * socket. When one fails inside a transaction, those behind it fail with it.
 *
 * @param statements each makes its statement, or returns false for none
 */
export function sendTogether<T extends (() => unknown)[]>(
  tx: Connection,
  statements: [...T],
): Promise<{ [K in keyof T]: Awaited<ReturnType<T[K]>> }> {
  const all = answersTo(sendEach(tx, statements));
  return all as Promise<{ [K in keyof T]: Awaited<ReturnType<T[K]>> }>;
}

/**
 * The same by name, for who needs what a statement returns before it is answered. Their answers are for `answersTo`.
 *
 * @returns what each has returned
 */
export function sendNamed<T extends Record<string, () => unknown>>(
  tx: Connection,
  statements: T,
): { [K in keyof T]: ReturnType<T[K]> } {
  const sent = sendEach(tx, Object.values(statements));
  const named = Object.keys(statements).map((name, place) => [name, sent[place]]);
  return Object.fromEntries(named) as { [K in keyof T]: ReturnType<T[K]> };
}

function sendEach(tx: Connection, statements: (() => unknown)[]): unknown[] {
  const { stream } = (tx as unknown as { connection: { stream: Duplex } }).connection;
  const sent: unknown[] = [];
  stream.cork();
  try {
    for (const send of statements) {
      sent.push(send());
      if (stream.writableLength < LARGE) continue;
      stream.uncork();
      stream.cork();
    }
  } finally {
    stream.uncork();
  }
  return sent;
}

/** The answers to statements that were sent together. @throws what failed first */
export function answersTo(sent: unknown[]): Promise<unknown[]> {
  return Promise.all(sent).catch((error) => causeOf(error, sent));
}

/** Of a statement in a transaction that another one has spoilt. */
const SPOILT = '25P02';

/** Who sends several statements hears of its failure a little later than those behind it. @throws what came first */
async function causeOf(error: unknown, answers: unknown[]): Promise<never> {
  const codeOf = (failure: unknown) => (failure as { code?: string } | undefined)?.code;
  if (codeOf(error) !== SPOILT) throw error;
  for (const answer of await Promise.allSettled(answers))
    if (answer.status === 'rejected' && codeOf(answer.reason) !== SPOILT) throw answer.reason;
  throw error;
}

/** Milliseconds between two reports of a Postgres that does not answer. */
const REPORT_INTERVAL = 30_000;

interface HeldSession {
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
