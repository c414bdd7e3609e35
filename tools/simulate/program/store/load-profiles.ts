import type { Connection } from '../../../../src/store/database.ts';
import { Profiles } from '../../../../workers/batch/profiles.ts';
import type { WorkItem } from '../../../../workers/batch/work-item.ts';
import { simulated } from './transactions.ts';

/** Waits in proportion to the number of objects and the cost of their workspaces. */
export async function loadProfiles(tx: Connection, items: WorkItem[], now: number) {
  const memoryTx = simulated(tx);
  const { pace } = memoryTx.pool;
  const cost = items.reduce((sum, { workspaceId }) => sum + pace.perObject(workspaceId), 0);
  await memoryTx.send(() => {});
  if (cost > 1) await new Promise((resolve) => setTimeout(resolve, cost));
  return { profiles: new Profiles(now), count: items.length };
}
