import type { Duplex } from 'node:stream';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { PrismaClient } from '../generated/prisma/client.ts';

// bigint columns hold counts that stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

export type Pool = pg.Pool;
/** One checked-out connection, inside a transaction where the name says `tx`. */
export type Connection = pg.PoolClient;

/**
 * Postgres, twice over one driver: `prisma` for the direct operations, one row or a page at a time, and
 * `pool` for statements over whole sets, which are prepared once per connection.
 */
export interface Database {
  pool: Pool;
  prisma: PrismaClient;
  stop(): Promise<void>;
}

/** Milliseconds; what takes longer fails. */
export interface Patience {
  /** For a connection, whether a new one or one of the pool's that another has now. */
  connection: number;
  /** For the answer to a statement. Absent: for ever. */
  statement?: number;
}

/** Most connections of `prisma`: what is one row at a time is short, and never in the way of whole sets. */
export const ROW_CONNECTIONS = 3;

/**
 * Opens lazily: the first statement connects.
 *
 * @param size most connections of the pool
 * @param options.session server settings for the pool's sessions, times in milliseconds
 */
export function openDatabase(
  url: string,
  size: number,
  {
    session = {},
    patience = { connection: 5000 },
  }: { session?: Record<string, number | string>; patience?: Patience } = {},
): Database {
  const options = Object.entries(session)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
  const pool = new pg.Pool({
    connectionString: url,
    options,
    max: size,
    connectionTimeoutMillis: patience.connection,
    query_timeout: patience.statement,
    keepAlive: true,
    // Statements leave as they are given, without waiting for the answers to those before: a transaction's
    // independent ones cost one round trip together.
    pipeline: true,
  } as pg.PoolConfig);
  // An idle connection that the server closes is replaced at the next use; without a listener it would end the process.
  pool.on('error', () => {});
  const prisma = new PrismaClient({
    adapter: new PrismaPg({
      connectionString: url,
      max: Math.min(size, ROW_CONNECTIONS),
      connectionTimeoutMillis: patience.connection,
      ...(patience.statement !== undefined && { query_timeout: patience.statement }),
    }),
  });
  return {
    pool,
    prisma,
    async stop() {
      await Promise.all([pool.end(), prisma.$disconnect()]);
    },
  };
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
  const { stream } = (tx as unknown as { connection: { stream: Duplex } }).connection;
  const answers: unknown[] = [];
  stream.cork();
  try {
    for (const send of statements) {
      answers.push(send());
      if (stream.writableLength < LARGE) continue;
      stream.uncork();
      stream.cork();
    }
  } finally {
    stream.uncork();
  }
  return Promise.all(answers) as Promise<{ [K in keyof T]: Awaited<ReturnType<T[K]>> }>;
}
