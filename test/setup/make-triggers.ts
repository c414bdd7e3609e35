import type pg from 'pg';
import { inTransaction } from '../../src/store/transactions.ts';

/**
 * Creates triggers. Triggers of distributed tables are on their shards, so each statement is sent separately.
 */
export async function makeTriggers(pool: pg.Pool, statements: string[]): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query('set local citus.enable_unsafe_triggers = on');
    for (const statement of statements) await tx.query(statement);
  });
}
