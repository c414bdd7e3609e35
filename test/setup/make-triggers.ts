import type pg from 'pg';
import { inTransaction } from '../../src/store/transactions.ts';

/** Where tables are distributed triggers are of their shards, and each statement is sent to them by itself. */
export async function makeTriggers(pool: pg.Pool, statements: string[]): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query('set local citus.enable_unsafe_triggers = on');
    for (const statement of statements) await tx.query(statement);
  });
}
