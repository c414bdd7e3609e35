import { MAX_UUID } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';

/** Maximum number of merged profiles whose events and purchases are read with those of the kept profile. */
export const MAX_MERGED = 500;

/** A profile that was merged into the user, directly or through other merges. */
export interface MergedProfile {
  id: string;
  keptId: string;
  mergedAt: Date;
}

/** Follows merges by the index merged_profiles_kept. `union` stops at a cycle. */
const selectMergedStatement = `
  with recursive owned as (
    select null::uuid as id, $2::uuid as kept, null::uuid as "keptId", null::timestamptz as "mergedAt"
    union
    select hit.profile_id, hit.profile_id, hit.kept_id, hit.merged_at
    from owned
    cross join lateral (
      select merged_profiles.profile_id, merged_profiles.kept_id, merged_profiles.merged_at
      from merged_profiles
      where merged_profiles.workspace_id = $1::uuid and merged_profiles.kept_id = owned.kept
      limit ${MAX_MERGED} + 1
    ) as hit
  )
  select owned.id, owned."keptId", owned."mergedAt"
  from owned
  where owned.id is not null
  limit ${MAX_MERGED} + 1`;

/**
 * Returns the profiles that were merged into the user. If there are more than MAX_MERGED, returns one more
 * than that.
 */
export async function selectMerged(
  pool: Pool,
  workspaceId: string,
  profileId: string,
): Promise<MergedProfile[]> {
  const { rows } = await pool.query<MergedProfile>({
    name: 'select-merged',
    text: selectMergedStatement,
    values: [workspaceId, profileId],
  });
  return rows;
}

/** Reads by the index deprecated_external_ids_profile. */
const selectRenamedStatement = `
  select deprecated.external_id as "externalId", deprecated.created_at as "renamedAt"
  from deprecated_external_ids as deprecated
  where deprecated.workspace_id = $1::uuid and deprecated.profile_id = $2::uuid
  limit $3::integer`;

/** Returns former external ids of the user. */
export async function selectRenamed(
  pool: Pool,
  { workspaceId, profileId, limit }: { workspaceId: string; profileId: string; limit: number },
): Promise<{ externalId: string; renamedAt: Date }[]> {
  const { rows } = await pool.query({
    name: 'select-renamed',
    text: selectRenamedStatement,
    values: [workspaceId, profileId, limit],
  });
  return rows;
}

/** An event or a purchase of a user. */
export interface TimelineEntry {
  /** UUIDv7, which starts with the time of acceptance. */
  id: string;
  kind: 'event' | 'purchase';
  /** Name of the event, or id of the product. */
  name: string;
  /** Time of the event, as sent by the client. */
  time: Date;
  appId: string | null;
  /** Properties. If they exceed SHOWN_BYTES, a message instead. */
  properties: Json;
  currency: string | null;
  /** Exact decimal. */
  price: string | null;
  quantity: number | null;
}

/** Maximum size in bytes of properties that a page shows. */
const SHOWN_BYTES = 8192;

const properties = (table: string) => `
      case when pg_column_size(${table}.properties) <= ${SHOWN_BYTES} then ${table}.properties
        when ${table}.properties is not null then to_jsonb('more than ${SHOWN_BYTES} bytes'::text) end as properties`;

/** Returns SQL for the last rows of each owner that were accepted before $3, by primary key. */
const lastOf = (table: 'events' | 'purchases') => `
    select ${table}.*
    from unnest($2::uuid[]) as owners (id)
    cross join lateral (
      select *
      from ${table}
      where ${table}.workspace_id = $1::uuid and ${table}.profile_id = owners.id and ${table}.id < $3::uuid
      order by ${table}.workspace_id desc, ${table}.profile_id desc, ${table}.id desc
      limit $4::integer
    ) as ${table}
    order by ${table}.id desc
    limit $4::integer`;

/** Reads by primary key, up to the page size for each owner; takes no lock. */
const readTimelineStatement = `
  select deeds.*
  from (
    (select events.id, 'event' as kind, events.name, events."time", events.app_id as "appId",${properties('events')},
      null::text as currency, null::text as price, null::integer as quantity
    from (${lastOf('events')}) as events)
    union all
    (select purchases.id, 'purchase', purchases.product_id, purchases."time", purchases.app_id,${properties('purchases')},
      purchases.currency, purchases.price::text, purchases.quantity
    from (${lastOf('purchases')}) as purchases)
  ) as deeds
  order by deeds.id desc
  limit $4::integer`;

/** A page of a user's events and purchases. */
interface TimelinePage {
  workspaceId: string;
  /** The user, and the profiles that were merged into the user. */
  owners: string[];
  /** Returns only entries accepted before the one with this id. */
  before?: string | undefined;
  limit: number;
}

/** Returns events and purchases, most recently accepted first. */
export async function readTimeline(
  pool: Pool,
  { workspaceId, owners, before = MAX_UUID, limit }: TimelinePage,
): Promise<TimelineEntry[]> {
  const { rows } = await pool.query<TimelineEntry>({
    name: 'read-timeline',
    text: readTimelineStatement,
    values: [workspaceId, owners, before, limit],
  });
  return rows;
}
