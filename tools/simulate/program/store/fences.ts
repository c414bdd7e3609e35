import type { Pool } from '../../../../src/store/database.ts';
import type { FenceState, FenceWait } from '../../../../src/store/fences.ts';
import { simulatedPool } from './transactions.ts';

export function exchangeArrivals(pool: Pool, waits: readonly FenceWait[]): Promise<FenceState[]> {
  const memoryPool = simulatedPool(pool);
  const { database, host } = memoryPool;
  return memoryPool.send(() =>
    waits.map(({ fence, lanes }) => {
      const arrived = database.arrivals(fence);
      for (const lane of lanes) database.arrive(fence, lane, host.name);
      return { fence, passed: database.isApplied(fence), arrived };
    }),
  );
}

export function openFences(pool: Pool, fences: readonly string[]): Promise<void> {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => {
    for (const fence of fences) memoryPool.database.openFence(fence);
  });
}
