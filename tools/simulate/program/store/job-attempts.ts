import type { Pool } from '../../../../src/store/database.ts';
import type { NamedWork } from '../../../../src/store/job-attempts.ts';
import { simulatedPool } from './transactions.ts';

export function beginAttempts(pool: Pool, { kind, ids }: NamedWork, processId: string) {
  const its = simulatedPool(pool);
  return its.send(() => its.database.beginAttempts(kind, ids, processId));
}

export function endAttempts(
  pool: Pool,
  { kind, ids }: NamedWork,
  { processId, whose }: { processId: string; whose: 'own' | 'others' | 'all' },
): Promise<void> {
  const its = simulatedPool(pool);
  const isEnded = (one: string) => whose === 'all' || (whose === 'own') === (one === processId);
  return its.send(() => its.database.endAttempts(kind, ids, isEnded));
}
