import type { Socket } from 'node:net';
import { type Span, tracing } from '../platform/tracing.ts';
import type { Connection, Pool } from './database.ts';
import { isForeignSession, isStalePlan } from './error-cause.ts';
import { PostgresClient } from './postgres-client.ts';

/** Timeouts in milliseconds of a transaction's statements and of their lock waits. */
export interface Limits {
  statement: number;
  lock: number;
  /**
   * Timeout of a connection on which no byte arrives or leaves; default `statement` plus `SILENCE_MS`. A
   * network that loses packets in one direction does not end a connection, and TCP sends again only after
   * pauses that double.
   */
  silence?: number;
}

/** Margin for the work of the process between two statements, and for a slow network. */
const SILENCE_MS = 10_000;

/**
 * Runs `work` in a transaction and commits it, or rolls it back if `work` throws. A connection that failed is
 * not reused.
 *
 * @param work may send COMMIT itself, in one write with its last statements; if one of these fails, the
 * server treats COMMIT as ROLLBACK
 * @throws the error of `work`, or the cause of a lost connection if it is known
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Connection, commit: () => Promise<unknown>) => Promise<T>,
  limits?: Limits,
): Promise<T> {
  const span = tracing?.recording();
  const tx = await pool.connect();
  if (span) assignTo(tx, span);
  let broken: Error | undefined;
  // A checked-out connection has no other error listener, and an unhandled error would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  tx.on('error', onError);
  const forget = limits && endIfSilent(tx, limits);
  let committed: Promise<unknown> | undefined;
  const commit = () => {
    committed ??= tx.query('commit');
    return committed;
  };
  try {
    await tx.query(beginStatement(limits));
    const result = await work(tx, commit);
    await commit();
    return result;
  } catch (error) {
    const lost = broken;
    if (isStalePlan(error) || isForeignSession(error)) broken = error as Error;
    await tx.query('rollback').catch((failure: Error) => {
      broken = failure;
    });
    throw lost ?? error;
  } finally {
    forget?.();
    tx.off('error', onError);
    if (span) assignTo(tx, undefined);
    tx.release(broken);
  }
}

/** Assigns the statements of a connection to a span until it is called again; undefined removes the assignment. */
function assignTo(tx: Connection, span: Span | undefined): void {
  if (tx instanceof PostgresClient) tx.parentSpan = span;
}

/** Ends a connection that stays silent for longer than its statements may take. @returns how to stop that */
function endIfSilent(tx: Connection, { statement, silence = statement + SILENCE_MS }: Limits): () => void {
  const stream = streamOf(tx);
  const end = () => {
    const message = `Postgres has not answered for ${silence} ms, longer than a statement may take`;
    stream.destroy(Object.assign(new Error(message), { code: 'ETIMEDOUT' }));
  };
  stream.setTimeout(silence, end);
  return () => stream.setTimeout(0, end);
}

/** Returns a single message, so that it takes one round trip. */
function beginStatement(limits: Limits | undefined): string {
  if (!limits) return 'begin';
  const { statement, lock } = limits;
  return `begin; set local statement_timeout = ${statement}; set local lock_timeout = ${lock}`;
}

/** Locks an export target, by a 64-bit hash, until the end of the transaction. */
const claimStatement = `select pg_try_advisory_xact_lock(hashtextextended('export ' || $1::text, 0)) as claimed`;

/** All statements of the transaction see the rows of this time. */
const momentStatement = 'select now() as moment';

/** A read-only snapshot of the store. */
export interface Snapshot {
  connection: Connection;
  asOf: Date;
}

/**
 * Runs `read` in one read-only transaction, so that all its statements see the same state of the store. Until it ends,
 * VACUUM cannot remove row versions that other transactions replace.
 */
export async function inReadOnly<T>(pool: Pool, read: (connection: Connection) => Promise<T>): Promise<T> {
  const connection = await pool.connect();
  let broken: Error | undefined;
  try {
    await connection.query('begin isolation level repeatable read read only');
    return await read(connection);
  } finally {
    await connection.query('rollback').catch((error: Error) => {
      broken = error;
    });
    connection.release(broken);
  }
}

/**
 * Does the same as `inReadOnly` for an export.
 *
 * @param target target that is written; only one process at a time can hold it
 * @returns undefined if another process holds the target
 */
export async function inSnapshot<T>(
  pool: Pool,
  target: string,
  read: (snapshot: Snapshot) => Promise<T>,
): Promise<T | undefined> {
  return inReadOnly(pool, async (connection) => {
    const { rows: claims } = await connection.query<{ claimed: boolean }>(claimStatement, [target]);
    if (!claims[0]!.claimed) return undefined;
    const { rows } = await connection.query<{ moment: Date }>(momentStatement);
    return read({ connection, asOf: rows[0]!.moment });
  });
}

/**
 * Bytes of buffered statements from which they are sent immediately, so that the server starts while later
 * ones are still being built.
 */
const LARGE = 32_768;

/**
 * Pipelines statements that do not need each other's results, in order. Small statements leave in one write
 * to the socket. If one of them fails inside a transaction, the later ones fail as well.
 *
 * @param statements each sends its statement, or returns false to send none
 */
export function sendPipelined<T extends (() => unknown)[]>(
  tx: Connection,
  statements: [...T],
): Promise<{ [K in keyof T]: Awaited<ReturnType<T[K]>> }> {
  const all = answersTo(sendCorked(tx, statements));
  return all as Promise<{ [K in keyof T]: Awaited<ReturnType<T[K]>> }>;
}

/**
 * Same as `sendPipelined` with named statements, for callers that need a statement's return value before its
 * result arrives. Pass the returned values to `answersTo`.
 *
 * @returns the return value of each function
 */
export function sendNamed<T extends Record<string, () => unknown>>(
  tx: Connection,
  statements: T,
): { [K in keyof T]: ReturnType<T[K]> } {
  const sent = sendCorked(tx, Object.values(statements));
  const named = Object.keys(statements).map((name, index) => [name, sent[index]]);
  return Object.fromEntries(named) as { [K in keyof T]: ReturnType<T[K]> };
}

function streamOf(tx: Connection): Socket {
  return (tx as unknown as { connection: { stream: Socket } }).connection.stream;
}

function sendCorked(tx: Connection, statements: (() => unknown)[]): unknown[] {
  const stream = streamOf(tx);
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

/** Waits for the results of pipelined statements. @throws the error that occurred first */
export function answersTo<T extends readonly unknown[]>(
  sent: readonly [...T],
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  return Promise.all(sent).catch((error) => throwCause(error, [...sent])) as Promise<{
    -readonly [K in keyof T]: Awaited<T[K]>;
  }>;
}

/** SQLSTATE of a statement in a transaction that has already failed. */
const ABORTED = '25P02';

/**
 * Finds the original error, which may be reported later than its consequences: a function that sends several
 * statements rejects a little later than the statements after it.
 *
 * @throws the original error
 */
async function throwCause(error: unknown, answers: unknown[]): Promise<never> {
  const codeOf = (failure: unknown) => (failure as { code?: string } | undefined)?.code;
  if (codeOf(error) !== ABORTED) throw error;
  for (const answer of await Promise.allSettled(answers))
    if (answer.status === 'rejected' && codeOf(answer.reason) !== ABORTED) throw answer.reason;
  throw error;
}
