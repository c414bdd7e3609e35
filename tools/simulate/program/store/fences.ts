import type { Pool } from '../../../../src/store/database.ts';
import { simulatedPool } from './transactions.ts';

export function announceArrival(pool: Pool, fence: string, lane: number): Promise<boolean> {
  const its = simulatedPool(pool);
  return its.send(() => its.database.arrive(fence, lane, its.host.name));
}

export function openFence(pool: Pool, fence: string): Promise<void> {
  const its = simulatedPool(pool);
  return its.send(() => its.database.openFence(fence));
}

export function readFence(pool: Pool, fence: string): Promise<{ passed: boolean; arrived: number[] }> {
  const its = simulatedPool(pool);
  return its.send(() => ({ passed: its.database.isApplied(fence), arrived: its.database.arrivals(fence) }));
}
