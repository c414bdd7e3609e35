import { MAX_UUID } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import type { Pool } from './database.ts';

/** Most merged profiles whose events and purchases are read with those of who took them in. */
export const MAX_MERGED = 500;

/** A profile that was merged into the user, or into one who was. */
export interface MergedProfile {
  id: string;
  keptId: string;
  mergedAt: Date;
}

/** From forwarding row to forwarding row along the index merged_profiles_kept; `union` ends where a circle would begin. */
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

/** Whom the user has taken in; one more than MAX_MERGED: there are more. */
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

/** By the index deprecated_external_ids_profile. */
const selectRenamedStatement = `
  select deprecated.external_id as "externalId", deprecated.created_at as "renamedAt"
  from deprecated_external_ids as deprecated
  where deprecated.workspace_id = $1::uuid and deprecated.profile_id = $2::uuid
  limit $3::integer`;

/** External ids that the user had before. */
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

/** What a user has done. */
export interface Deed {
  /** UUIDv7 that begins with the time of its acceptance. */
  id: string;
  kind: 'event' | 'purchase';
  /** Of the event, or the product's id. */
  name: string;
  /** When it happened, as its sender says. */
  time: Date;
  appId: string | null;
  /** At most so many bytes of its JSON; a longer one is a text that says so. */
  properties: Json;
  currency: string | null;
  /** Exact decimals. */
  price: string | null;
  quantity: number | null;
}

/** Bytes of properties that a page shows of each. */
const SHOWN_BYTES = 8192;

const properties = (table: string) => `
      case when pg_column_size(${table}.properties) <= ${SHOWN_BYTES} then ${table}.properties
        when ${table}.properties is not null then to_jsonb('more than ${SHOWN_BYTES} bytes'::text) end as properties`;

/** The last of each owner that were accepted before $3, by primary key. */
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

/** By primary key, as many rows as the page has of each owner; locks nothing. */
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

/** Which page of whose deeds. */
interface TimelinePage {
  workspaceId: string;
  /** The user, and those whom the user has taken in. */
  owners: string[];
  /** Only what was accepted before the one with this id. */
  before?: string | undefined;
  limit: number;
}

/** Events and purchases, those accepted last first. */
export async function readTimeline(
  pool: Pool,
  { workspaceId, owners, before = MAX_UUID, limit }: TimelinePage,
): Promise<Deed[]> {
  const { rows } = await pool.query<Deed>({
    name: 'read-timeline',
    text: readTimelineStatement,
    values: [workspaceId, owners, before, limit],
  });
  return rows;
}
