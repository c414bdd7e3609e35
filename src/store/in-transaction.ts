import type { Connection, Pool } from './database.ts';

/** Commits what `work` does, or nothing of it. A connection that failed is not used again. */
export async function inTransaction<T>(pool: Pool, work: (tx: Connection) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  let broken: Error | undefined;
  // While it is checked out, the connection's own errors have no other listener, and would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  tx.on('error', onError);
  try {
    await tx.query('begin');
    const result = await work(tx);
    await tx.query('commit');
    return result;
  } catch (error) {
    await tx.query('rollback').catch((failure: Error) => {
      broken = failure;
    });
    throw error;
  } finally {
    tx.off('error', onError);
    tx.release(broken);
  }
}
