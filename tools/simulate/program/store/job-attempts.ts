import type { Pool } from '../../../../src/store/database.ts';
import type { NamedWork } from '../../../../src/store/job-attempts.ts';
import { simulatedPool } from './transactions.ts';

export function beginAttempts(pool: Pool, { kind, ids }: NamedWork, processId: string) {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => memoryPool.database.beginAttempts(kind, ids, processId));
}

export function endAttempts(
  pool: Pool,
  { kind, ids }: NamedWork,
  { processId, whose }: { processId: string; whose: 'own' | 'others' | 'all' },
): Promise<void> {
  const memoryPool = simulatedPool(pool);
  const isEnded = (one: string) => whose === 'all' || (whose === 'own') === (one === processId);
  return memoryPool.send(() => memoryPool.database.endAttempts(kind, ids, isEnded));
}
