import { texts, uuids } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/** Columns of a stored profile that appliers need, whichever identifier found it. */
export interface ProfileRow {
  workspaceId: string;
  id: string;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
}

/** Select list of a ProfileRow, for a table aliased `profiles`. */
export const profileColumns = `
    profiles.workspace_id as "workspaceId",
    profiles.id,
    profiles.external_id as "externalId",
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid"`;

/** Reads by primary key; takes no lock. */
const findByIdStatement = withCitusForm(`
  select ${profileColumns}
  from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id`);

export async function findById(tx: Connection, workspaceIds: string[], ids: string[]): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-id',
    text: findByIdStatement,
    values: [workspaceIds, ids],
  });
  return rows;
}

/** Size in bytes up to which custom attributes count as small. */
export const LITTLE_BYTES = 32_768;

/**
 * SQL for the size of custom attributes in bytes. Decompresses the value but does not read it further,
 * because its size is in its header.
 */
export const attributesBytes = "pg_column_size(profiles.custom_attributes || '{}'::jsonb)";

/** A profile that was found for one of the wanted identifiers. */
export interface FoundProfile {
  /** Position of the wanted identifier, from 1. */
  place: number;
  id: string;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
  /** Whether the custom attributes have at most LITTLE_BYTES, so that their size does not matter. */
  isLittle: boolean;
}

/** Reads by the unique index profiles_external_id; takes no lock. */
const findByExternalIdStatement = withCitusForm(`
  select
    wanted.place::integer,
    profiles.id,
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid",
    ${attributesBytes} <= ${LITTLE_BYTES} as "isLittle"
  from unnest($1::uuid[], $2::text[]) with ordinality as wanted (workspace_id, external_id, place)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.external_id = wanted.external_id
    limit 1
  ) as profiles`);

/**
 * Returns the profiles with the given external ids. Columns that the caller already has are omitted, because
 * this statement returns more rows than any other.
 */
export async function findByExternalId(
  tx: Pick<Connection | Pool, 'query'>,
  workspaceIds: string[],
  externalIds: string[],
): Promise<FoundProfile[]> {
  const { rows } = await tx.query<FoundProfile>({
    name: 'find-by-external-id',
    text: findByExternalIdStatement,
    values: [uuids(workspaceIds), texts(externalIds)],
  });
  return rows;
}

/**
 * Reads by the unique index profiles_external_id; takes no lock. Returns all ids in one row, because separate
 * rows cost both sides more than the lookup.
 */
const findIdsByExternalIdStatement = withCitusForm(`
  select json_agg(profiles.id order by wanted.place) as ids
  from unnest($1::uuid[], $2::text[]) with ordinality as wanted (workspace_id, external_id, place)
  left join lateral (
    select profiles.id
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.external_id = wanted.external_id
    limit 1
  ) as profiles on true`);

/** Returns the profile id for each external id, in order; null if no profile has it. */
export async function findIdsByExternalId(
  tx: Connection,
  workspaceIds: string[],
  externalIds: string[],
): Promise<(string | null)[]> {
  const { rows } = await tx.query<{ ids: (string | null)[] }>({
    name: 'find-ids-by-external-id',
    text: findIdsByExternalIdStatement,
    values: [uuids(workspaceIds), texts(externalIds)],
  });
  return rows[0]!.ids;
}

/** Maximum number of profiles returned per address. If there are as many, there may be more. */
export const MAX_SHARING = 100;

/** Maximum number of profiles of an address that can still identify a user. */
export const MAX_HOLDERS = 500;

/** Maximum and minimum number of summary rows per profile that are read to find its last update. */
const MAX_NAMES = 500;
const MIN_NAMES = 10;

/** Approximate maximum number of rows per summary table that are read for all profiles of an address. */
const MAX_ROWS = 5000;

/** A row of `sharingStatement`. `holders` is counted up to MAX_HOLDERS + 1. */
export interface SharingRow extends ProfileRow {
  holders: number;
}

/** Returns SQL for the time at which the profile's last summarized event or purchase was received. */
function lastOf(summaries: 'event_summaries' | 'purchase_summaries'): string {
  return `(
        select max(latest.updated_at)
        from (
          select ${summaries}.updated_at from ${summaries}
          where ${summaries}.workspace_id = profiles.workspace_id and ${summaries}.profile_id = profiles.id
          limit greatest(${MIN_NAMES}, least(${MAX_NAMES}, ${MAX_ROWS} / profiles.holders))) as latest)`;
}

/**
 * SQL for the last update of a profile by an attribute, an event or a purchase, for a table aliased
 * `profiles` that has `holders` from `holdersOf`. The more profiles share an address, the fewer summary rows
 * are read for each. Above MAX_HOLDERS the address cannot identify a user, and only attributes count.
 */
export const lastUpdated = `case when profiles.holders > ${MAX_HOLDERS} then profiles.updated_at
        else greatest(profiles.updated_at, ${lastOf('event_summaries')}, ${lastOf('purchase_summaries')}) end`;

/**
 * Returns SQL for the profiles that have an address, unordered, by the index on that column. `holders` is
 * their number.
 *
 * @param address SQL of the wanted workspace and address
 * @param condition SQL of an additional condition on the row
 * @param most maximum number of rows
 */
export function holdersOf(
  { column, workspaceId, address }: { column: 'email' | 'phone'; workspaceId: string; address: string },
  condition: string,
  max: number,
): string {
  return `
      select profiles.*, count(*) over () as holders
      from (
        select ${holderColumns}
        from profiles
        where profiles.workspace_id = ${workspaceId}
          and profiles.${column} = ${address}
          and ${condition}
        limit ${max}
      ) as profiles`;
}

/** Columns of a profile that queries by address need. */
const holderColumns = ['workspace_id', 'id', 'external_id', 'email', 'phone', 'phone_valid', 'updated_at']
  .map((column) => `profiles.${column}`)
  .join(', ');

/**
 * Returns a statement for the profiles that share each address, by the index on the address column and the
 * primary keys of the summaries; takes no lock. Per address, profiles with an external id come first; within
 * both groups, the most recently updated profile comes first. Events and purchases also update a profile, but
 * only their summaries have the time.
 *
 * @param column address column of profiles
 * @param condition SQL of an additional condition on the row
 */
function sharingStatement(column: 'email' | 'phone', condition: string): string {
  const wanted = { column, workspaceId: 'wanted.workspace_id', address: 'wanted.address' };
  return `
  select ${profileColumns}, profiles.holders::integer
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, address)
  cross join lateral (
    select profiles.*
    from (${holdersOf(wanted, condition, MAX_HOLDERS + 1)}
    ) as profiles
    order by profiles.external_id is null, ${lastUpdated} desc, profiles.id desc
    limit ${MAX_SHARING}
  ) as profiles`;
}

const findByEmailStatement = withCitusForm(sharingStatement('email', 'true'));

/** Returns the profiles that share each email address, best match first, up to MAX_SHARING per address. */
export async function findByEmail(
  tx: Connection,
  workspaceIds: string[],
  emails: string[],
): Promise<SharingRow[]> {
  const { rows } = await tx.query<SharingRow>({
    name: 'find-by-email',
    text: findByEmailStatement,
    values: [workspaceIds, emails],
  });
  return rows;
}

const findByPhoneStatement = withCitusForm(sharingStatement('phone', 'profiles.phone_valid'));

/**
 * Returns the profiles that share each valid phone number, best match first, up to MAX_SHARING per number.
 */
export async function findByPhone(
  tx: Connection,
  workspaceIds: string[],
  phones: string[],
): Promise<SharingRow[]> {
  const { rows } = await tx.query<SharingRow>({
    name: 'find-by-phone',
    text: findByPhoneStatement,
    values: [workspaceIds, phones],
  });
  return rows;
}

const wanted = { workspaceId: 'wanted.workspace_id', address: 'wanted.address' };

const statementOf = (column: 'email' | 'phone', condition: string) =>
  withCitusForm(`
  select ${profileColumns}, wanted.address
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, address)
  cross join lateral (
    select profiles.*, ${lastUpdated} as seen
    from (${holdersOf({ column, ...wanted }, condition, MAX_HOLDERS + 1)}
    ) as profiles
  ) as profiles
  order by wanted.address, profiles.seen, profiles.id`);

const statements = {
  email: statementOf('email', 'true'),
  phone: statementOf('phone', 'profiles.phone_valid'),
};

/**
 * Returns all profiles of each address, least recently updated first, by the index on the address column and
 * the primary keys of the summaries. If an address has more than MAX_HOLDERS, there may be more than are
 * returned.
 */
export async function findCandidates(
  tx: Connection,
  column: 'email' | 'phone',
  { workspaceIds, addresses }: { workspaceIds: string[]; addresses: string[] },
): Promise<(ProfileRow & { address: string })[]> {
  const { rows } = await tx.query({
    name: `find-candidates-by-${column}`,
    text: statements[column],
    values: [workspaceIds, addresses],
  });
  return rows;
}
