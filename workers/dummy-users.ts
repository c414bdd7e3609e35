import type { Log } from '../src/log.ts';
import { blockIfDummies } from '../src/store/blocked-external-ids/block-if-dummies.ts';
import { findCrowdedProfiles } from '../src/store/blocked-external-ids/find-crowded-profiles.ts';
import type { Pool } from '../src/store/database.ts';

/**
 * Blocks the users who have more than 20,000 distinct event names or products: objects for their external ids
 * are refused from then on, what is stored stays. Safe to repeat and to race.
 *
 * It looks at what is stored, beside the lanes, since a batch cannot tell at no cost: to learn which summaries
 * an upsert has inserted, and to count those of their profiles, made an upsert of 2000 new summaries take
 * 111 ms instead of 29. The sample that is looked at here costs an insert a hash, 0.1 µs.
 */
export async function blockDummyUsers(pool: Pool, log: Log): Promise<void> {
  const crowded = await findCrowdedProfiles(pool);
  if (crowded.length === 0) return;
  for (const { workspaceId: workspace_id, blocked, leftOut } of await blockIfDummies(pool, crowded)) {
    if (blocked > 0) log.warn({ workspace_id, blocked }, 'dummy users are blocked from now on');
    if (leftOut > 0)
      log.error({ workspace_id, left_out: leftOut }, 'dummy users go on: no more can be blocked');
  }
}
