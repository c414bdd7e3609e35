import type { Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * Maximum number of blocked external ids of a workspace. Every web process holds them in memory and reads
 * them again whenever it looks up an API key of the workspace. The maximum takes 3.4 ms of processor time.
 */
export const MAX_BLOCKED = 10_000;

/**
 * Maximum number of distinct event names, and of distinct products, of a user. A user with more is a dummy
 * user.
 */
const MAX_DISTINCT = 20_000;

interface DummyUsers {
  workspaceId: string;
  /** Number of users that this call has blocked. */
  blocked: number;
  /** Dummy users that are not blocked, because the workspace already has `MAX_BLOCKED` blocked ids. */
  leftOut: number;
}

/**
 * Counts summaries by their primary keys, up to one more than the limit, and inserts in primary key order.
 * `known` is materialized, so that users who are already blocked or were unblocked are not counted.
 */
const blockIfDummiesStatement = withCitusForm(`
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
  group by placed.workspace_id`);

/**
 * Blocks the external ids of profiles that have more distinct event names or products than allowed. The
 * reason names the limit. Profiles without an external id cannot be blocked.
 *
 * @returns one entry per workspace with dummy users that were not blocked before
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
  /** Kind of the summaries, in words. */
  things: 'event names' | 'products';
}

/**
 * Number of summaries in the sample (one of 256) from which a profile is counted completely. A profile with
 * 20,000 summaries is expected to have 78 in the sample, and has fewer than 32 once in 10^9 cases. A profile
 * with 32 in the sample is expected to have 8,000 in total.
 */
const MANY_SAMPLED = 32;

/**
 * Scans only the indexes event_summaries_sample and purchase_summaries_sample; takes no lock. With 1.7
 * million event summaries this takes 4 ms (8 ms if a third was just updated); a scan of all summaries takes
 * 700 ms.
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

/**
 * Returns every profile that may have more than 20,000 distinct event names or products. Some of them have
 * fewer.
 */
export async function findCrowdedProfiles(pool: Pool): Promise<CrowdedProfile[]> {
  const { rows } = await pool.query<CrowdedProfile>(findCrowdedProfilesStatement);
  return rows;
}
