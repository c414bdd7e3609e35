import type { Connection, Pool } from '../../../../src/store/database.ts';
import type { Limits } from '../../../../src/store/transactions.ts';
import type { SimulatedPool, SimulatedTransaction } from '../../pool.ts';

export const simulated = (tx: Connection): SimulatedTransaction => tx as unknown as SimulatedTransaction;
export const simulatedPool = (pool: Pool): SimulatedPool => pool as unknown as SimulatedPool;

export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Connection, commit: () => Promise<unknown>) => Promise<T>,
  limits?: Limits,
): Promise<T> {
  const memoryPool = simulatedPool(pool);
  const tx = await memoryPool.begin(limits);
  let committed: Promise<unknown> | undefined;
  const commit = () => {
    committed ??= tx.commit();
    return committed;
  };
  try {
    const result = await work(tx as unknown as Connection, commit);
    await commit();
    return result;
  } catch (error) {
    await tx.rollback();
    throw error;
  } finally {
    memoryPool.release();
  }
}

export function sendPipelined(_tx: Connection, statements: (() => unknown)[]): Promise<unknown[]> {
  return answersTo(statements.map((send) => send()));
}

const SPOILT = '25P02';

export async function answersTo(sent: unknown[]): Promise<unknown[]> {
  const answers = await Promise.allSettled(sent);
  const failures = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason] : []));
  if (failures.length > 0) throw failures.find((failure) => failure?.code !== SPOILT) ?? failures[0];
  return answers.map((answer) => (answer as PromiseFulfilledResult<unknown>).value);
}
