import type { Duplex } from 'node:stream';
import type { Connection } from './database.ts';

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
