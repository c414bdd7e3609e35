import type { Pool } from '../../../../src/store/database.ts';
import { simulatedPool } from './transactions.ts';

export function announceArrival(pool: Pool, fence: string, lane: number): Promise<boolean> {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => memoryPool.database.arrive(fence, lane, memoryPool.host.name));
}

export function openFence(pool: Pool, fence: string): Promise<void> {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => memoryPool.database.openFence(fence));
}

export function readFence(pool: Pool, fence: string): Promise<{ passed: boolean; arrived: number[] }> {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => ({
    passed: memoryPool.database.isApplied(fence),
    arrived: memoryPool.database.arrivals(fence),
  }));
}
