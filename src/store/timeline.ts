import { MAX_UUID } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { type AttributesChange, readAttributeChanges } from './attribute-changes.ts';
import type { Pool } from './database.ts';

/** Maximum number of merged profiles whose events and purchases are read with those of the kept profile. */
export const MAX_MERGED = 500;

/** A profile that was merged into the user, directly or through other merges. */
export interface MergedProfile {
  id: string;
  keptId: string;
  mergedAt: Date;
  /** External id that it had. Null if it had none, or if an earlier release has merged it. */
  externalId: string | null;
}

/** Follows merges by the index merged_profiles_kept. `union` stops at a cycle. */
const selectMergedStatement = `
  with recursive owned as (
    select null::uuid as id, $2::uuid as kept, null::uuid as "keptId", null::timestamptz as "mergedAt",
      null::text as "externalId"
    union
    select hit.profile_id, hit.profile_id, hit.kept_id, hit.merged_at, hit.external_id
    from owned
    cross join lateral (
      select merged_profiles.profile_id, merged_profiles.kept_id, merged_profiles.merged_at,
        merged_profiles.external_id
      from merged_profiles
      where merged_profiles.workspace_id = $1::uuid and merged_profiles.kept_id = owned.kept
      limit ${MAX_MERGED} + 1
    ) as hit
  )
  select owned.id, owned."keptId", owned."mergedAt", owned."externalId"
  from owned
  where owned.id is not null
  limit ${MAX_MERGED} + 1`;

/**
 * Returns the profiles that were merged into the user. If there are more than MAX_MERGED, returns one more
 * than that.
 */
export async function selectMerged(
  pool: Pick<Pool, 'query'>,
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
  pool: Pick<Pool, 'query'>,
  { workspaceId, profileId, limit }: { workspaceId: string; profileId: string; limit: number },
): Promise<{ externalId: string; renamedAt: Date }[]> {
  const { rows } = await pool.query({
    name: 'select-renamed',
    text: selectRenamedStatement,
    values: [workspaceId, profileId, limit],
  });
  return rows;
}

/** Reads by primary key. */
const readChangesStatement = `
  select profiles.attribute_changes as changes
  from profiles
  where profiles.workspace_id = $1::uuid and profiles.id = $2::uuid and profiles.attribute_changes is not null`;

/** Returns the latest changes of the user's attributes. */
export async function selectAttributeChanges(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  profileId: string,
): Promise<AttributesChange[]> {
  const { rows } = await pool.query<{ changes: string }>({
    name: 'select-attribute-changes',
    text: readChangesStatement,
    values: [workspaceId, profileId],
  });
  return rows.flatMap(({ changes }) => readAttributeChanges(changes));
}

/** The kinds of activity, each in a table of its own. */
const tables = { event: 'events', purchase: 'purchases' } as const;

export type ActivityKind = keyof typeof tables;

/** The position of an event or purchase in the timeline. */
export interface ActivityKey {
  /** UUIDv7, which starts with the time of acceptance. */
  id: string;
  kind: ActivityKind;
  profileId: string;
  /** Time of the event, as sent by the client. */
  time: Date;
}

/** Returns SQL for the last rows of each owner that were accepted before $3, by primary key. */
const lastOf = (kind: ActivityKind) => `
    select rows.id, '${kind}' as kind, rows.profile_id as "profileId", rows."time"
    from unnest($2::uuid[]) as owners (id)
    cross join lateral (
      select ${tables[kind]}.id, ${tables[kind]}.profile_id, ${tables[kind]}."time"
      from ${tables[kind]}
      where ${tables[kind]}.workspace_id = $1::uuid and ${tables[kind]}.profile_id = owners.id
        and ${tables[kind]}.id < $3::uuid
        and '${kind}' = any($5::text[])
      order by ${tables[kind]}.workspace_id desc, ${tables[kind]}.profile_id desc, ${tables[kind]}.id desc
      limit $4::integer
    ) as rows`;

/** Reads by primary key, up to the limit for each owner; takes no lock. */
const readKeysStatement = `
  select deeds.*
  from (${lastOf('event')}
    union all${lastOf('purchase')}
  ) as deeds
  order by deeds.id desc
  limit $4::integer`;

/** A part of a user's events and purchases. */
interface ActivityPart {
  workspaceId: string;
  /** The user, and the profiles that were merged into the user. */
  owners: string[];
  kinds: readonly ActivityKind[];
  /** Returns only entries accepted before the entry with this id. */
  before?: string | undefined;
  limit: number;
}

/** Returns the positions of events and purchases, most recently accepted first. */
export async function readActivityKeys(
  pool: Pick<Pool, 'query'>,
  { workspaceId, owners, kinds, before = MAX_UUID, limit }: ActivityPart,
): Promise<ActivityKey[]> {
  const { rows } = await pool.query<ActivityKey>({
    name: 'read-activity-keys',
    text: readKeysStatement,
    values: [workspaceId, owners, before, limit, kinds],
  });
  return rows;
}

/** An event or a purchase of a user. */
export interface TimelineEntry {
  id: string;
  kind: ActivityKind;
  /** Name of the event, or id of the product. */
  name: string;
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

const entriesOf = (kind: ActivityKind, columns: string) => `
    select entries.id, '${kind}' as kind, entries."time", entries.app_id as "appId",
      case when pg_column_size(entries.properties) <= ${SHOWN_BYTES} then entries.properties
        when entries.properties is not null then to_jsonb('more than ${SHOWN_BYTES} bytes'::text) end as properties,
      ${columns}
    from unnest($2::uuid[], $3::uuid[], $4::text[]) as wanted (profile_id, id, kind)
    cross join lateral (
      select *
      from ${tables[kind]}
      where ${tables[kind]}.workspace_id = $1::uuid and ${tables[kind]}.profile_id = wanted.profile_id
        and ${tables[kind]}.id = wanted.id and wanted.kind = '${kind}'
      limit 1
    ) as entries`;

/** Reads by primary key; takes no lock. */
const readEntriesStatement = `${entriesOf('event', 'entries.name, null::text as currency, null::text as price, null::integer as quantity')}
    union all${entriesOf('purchase', 'entries.product_id, entries.currency, entries.price::text, entries.quantity')}`;

/** Returns the events and purchases at these positions, by id. */
export async function readActivity(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  keys: readonly ActivityKey[],
): Promise<Map<string, TimelineEntry>> {
  if (keys.length === 0) return new Map();
  const { rows } = await pool.query<TimelineEntry>({
    name: 'read-activity-entries',
    text: readEntriesStatement,
    values: [
      workspaceId,
      keys.map(({ profileId }) => profileId),
      keys.map(({ id }) => id),
      keys.map(({ kind }) => kind),
    ],
  });
  return new Map(rows.map((row) => [row.id, row]));
}
