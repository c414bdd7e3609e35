import type { Pool } from '../database.ts';

export interface CrowdedProfile {
  workspaceId: string;
  profileId: string;
  /** What it has many of, in words. */
  things: 'event names' | 'products';
}

/**
 * Sampled summaries, of one in 256, from which on a profile is worth counting out. One with 20,000 is expected
 * to have 78, and has fewer than 32 once in 10^9 times; one with 32 is expected to have 8000 of them all.
 */
const MANY_SAMPLED = 32;

/**
 * By scans of event_summaries_sample and purchase_summaries_sample alone; locks nothing. With 1.7
 * million event summaries 4 ms (8 with a third of them just updated), where a scan of them all takes 700.
 */
const statement = `
  select
    event_summaries.workspace_id as "workspaceId",
    event_summaries.profile_id as "profileId",
    'event names' as things
  from event_summaries
  where ((uuid_hash(event_summaries.profile_id) # hashtext(event_summaries.name)) & 255) = 0
  group by event_summaries.workspace_id, event_summaries.profile_id
  having count(*) >= ${MANY_SAMPLED}
  union all
  select purchase_summaries.workspace_id, purchase_summaries.profile_id, 'products'
  from purchase_summaries
  where ((uuid_hash(purchase_summaries.profile_id) # hashtext(purchase_summaries.product_id)) & 255) = 0
  group by purchase_summaries.workspace_id, purchase_summaries.profile_id
  having count(*) >= ${MANY_SAMPLED}`;

/** Every profile that may have more than 20,000 distinct event names or products, and some that have fewer. */
export async function findCrowdedProfiles(pool: Pool): Promise<CrowdedProfile[]> {
  const { rows } = await pool.query<CrowdedProfile>(statement);
  return rows;
}
