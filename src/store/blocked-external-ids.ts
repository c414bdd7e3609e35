import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/**
 * Most external ids of one workspace that are blocked at once. Every edge holds them in memory, and reads them again
 * whenever it looks up an API key of the workspace. So many take it 3.4 ms of a core.
 */
export const MAX_BLOCKED = 10_000;

/** Distinct event names, and distinct products, that a user may have; one with more is a dummy user. */
const MAX_DISTINCT = 20_000;

export interface DummyUsers {
  workspaceId: string;
  /** Blocked now. */
  blocked: number;
  /** Dummy users that are not blocked, since the workspace has `MAX_BLOCKED` of them already. */
  leftOut: number;
}

/**
 * Counts summaries by their primary keys, as far as one past the limit, and inserts by primary key, sorted by
 * it. `known` is materialized so that nobody is counted who is blocked already or was let in again.
 */
const blockIfDummiesStatement = `
  with known as materialized (
    select profiles.workspace_id, profiles.id, profiles.external_id, crowded.things
    from unnest($1::uuid[], $2::uuid[], $3::text[]) as crowded (workspace_id, profile_id, things)
    join workspaces
      on workspaces.id = crowded.workspace_id
    join profiles
      on profiles.workspace_id = crowded.workspace_id
      and profiles.id = crowded.profile_id
    where profiles.external_id is not null
      and not exists (
        select from blocked_external_ids
        where blocked_external_ids.workspace_id = profiles.workspace_id
          and blocked_external_ids.external_id = profiles.external_id)
  ),
  dummies as (
    select
      known.workspace_id,
      known.external_id,
      'more than ${MAX_DISTINCT} distinct ' || string_agg(known.things, ' and ' order by known.things) as reason
    from known
    where case known.things
      when 'event names' then exists (
        select from event_summaries
        where event_summaries.workspace_id = known.workspace_id
          and event_summaries.profile_id = known.id
        offset ${MAX_DISTINCT})
      else exists (
        select distinct purchase_summaries.product_id
        from purchase_summaries
        where purchase_summaries.workspace_id = known.workspace_id
          and purchase_summaries.profile_id = known.id
        offset ${MAX_DISTINCT})
      end
    group by known.workspace_id, known.external_id
  ),
  placed as (
    select
      dummies.*,
      row_number() over (partition by dummies.workspace_id order by dummies.external_id) + (
        select count(*)
        from blocked_external_ids
        where blocked_external_ids.workspace_id = dummies.workspace_id
          and blocked_external_ids.unblocked_at is null) as place
    from dummies
  ),
  blocked as (
    insert into blocked_external_ids (workspace_id, external_id, reason)
    select placed.workspace_id, placed.external_id, placed.reason
    from placed
    where placed.place <= ${MAX_BLOCKED}
    order by placed.workspace_id, placed.external_id
    on conflict (workspace_id, external_id) do nothing
    returning blocked_external_ids.workspace_id, blocked_external_ids.external_id
  )
  select
    placed.workspace_id as "workspaceId",
    count(blocked.external_id)::integer as blocked,
    count(*) filter (where placed.place > ${MAX_BLOCKED})::integer as "leftOut"
  from placed
  left join blocked
    on blocked.workspace_id = placed.workspace_id
    and blocked.external_id = placed.external_id
  group by placed.workspace_id`;

/**
 * Blocks the external ids of those profiles that have more distinct event names or products than a user may
 * have; the reason names the rule. A profile without an external id has nothing that could be blocked.
 *
 * @returns one entry per workspace that has dummy users who were not blocked yet
 */
export async function blockIfDummies(pool: Pool, crowded: CrowdedProfile[]): Promise<DummyUsers[]> {
  return forEachWorkspace(
    pool,
    { given: crowded, workspaceOf: ({ workspaceId }) => workspaceId },
    async (some) => {
      const { rows } = await pool.query<DummyUsers>(blockIfDummiesStatement, [
        some.map(({ workspaceId }) => workspaceId),
        some.map(({ profileId }) => profileId),
        some.map(({ things }) => things),
      ]);
      return rows;
    },
  );
}

interface CrowdedProfile {
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
const findCrowdedProfilesStatement = `
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
  const { rows } = await pool.query<CrowdedProfile>(findCrowdedProfilesStatement);
  return rows;
}
