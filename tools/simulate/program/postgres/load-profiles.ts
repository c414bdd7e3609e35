import { loadProfiles as realLoad } from '../../../../workers/batch/load-profiles.ts';
import { gated } from './client.ts';

/** Loads profiles, and then waits in proportion to the number of objects and the cost of their workspaces. */
export async function loadProfiles(...given: Parameters<typeof realLoad>): ReturnType<typeof realLoad> {
  const [tx, items] = given;
  const { pace } = gated(tx).pool;
  const loaded = await realLoad(...given);
  const cost = items.reduce((sum, { workspaceId }) => sum + pace.perObject(workspaceId), 0);
  if (cost > 1) await new Promise((resolve) => setTimeout(resolve, cost));
  return loaded;
}
