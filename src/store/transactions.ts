import type { Duplex } from 'node:stream';
import { tracing } from '../platform/tracing.ts';
import { type Connection, type Pool, workFor } from './database.ts';
import { isForeignSession, isStalePlan } from './error-cause.ts';

/** Milliseconds that a transaction's statements may take, and wait for a lock; what takes longer fails. */
export interface Limits {
  statement: number;
  lock: number;
}

/**
 * Commits what `work` does, or nothing of it. A connection that failed is not used again.
 *
 * @param work may send COMMIT itself, behind its last statements and in one write with them: should one of those fail,
 *   the server takes it for ROLLBACK
 * @throws what `work` throws, or why the connection was lost, where that is known
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Connection, commit: () => Promise<unknown>) => Promise<T>,
  limits?: Limits,
): Promise<T> {
  const span = tracing?.recording();
  const tx = await pool.connect();
  if (span) workFor(tx, span);
  let broken: Error | undefined;
  // While it is checked out, the connection's own errors have no other listener, and would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  tx.on('error', onError);
  let committed: Promise<unknown> | undefined;
  const commit = () => {
    committed ??= tx.query('commit');
    return committed;
  };
  try {
    await tx.query(beginning(limits));
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
    tx.off('error', onError);
    if (span) workFor(tx, undefined);
    tx.release(broken);
  }
}

/** One message, and so one round trip. */
function beginning(limits: Limits | undefined): string {
  if (!limits) return 'begin';
  const { statement, lock } = limits;
  return `begin; set local statement_timeout = ${statement}; set local lock_timeout = ${lock}`;
}

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
export function answersTo<T extends readonly unknown[]>(
  sent: readonly [...T],
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  return Promise.all(sent).catch((error) => causeOf(error, [...sent])) as Promise<{
    -readonly [K in keyof T]: Awaited<T[K]>;
  }>;
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
