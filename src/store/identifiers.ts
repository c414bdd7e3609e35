import { texts, uuids } from './arrays.ts';
import type { Connection, Pool } from './database.ts';

/** What the appliers need to know of a stored profile, whichever identifier found it. */
export interface ProfileRow {
  workspaceId: string;
  id: string;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
}

/** The select list of a ProfileRow, for a table aliased `profiles`. */
export const profileColumns = `
    profiles.workspace_id as "workspaceId",
    profiles.id,
    profiles.external_id as "externalId",
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid"`;

/** By primary key; locks nothing. */
const findByIdStatement = `
  select ${profileColumns}
  from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id`;

export async function findById(tx: Connection, workspaceIds: string[], ids: string[]): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-id',
    text: findByIdStatement,
    values: [workspaceIds, ids],
  });
  return rows;
}

/** Up to how many bytes custom attributes are little. */
export const LITTLE_BYTES = 32_768;

/** SQL: bytes of custom attributes. Unpacks what is compressed, and no more: what a value takes stands in front of it. */
export const attributesBytes = "pg_column_size(profiles.custom_attributes || '{}'::jsonb)";

/** A profile, and which of the wanted ones it is. */
export interface FoundProfile {
  /** 1 is the first. */
  place: number;
  id: string;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
  /** Whether its custom attributes are so few that their size decides nothing. */
  isLittle: boolean;
}

/** By the unique index profiles_external_id; locks nothing. */
const findByExternalIdStatement = `
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
  ) as profiles`;

/** What the caller knows already is not sent back: this is the statement with the most rows of all. */
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
 * By the unique index profiles_external_id; locks nothing. One row of all ids: each as a row of its own takes both sides
 * longer than to find it does.
 */
const findIdsByExternalIdStatement = `
  select json_agg(profiles.id order by wanted.place) as ids
  from unnest($1::uuid[], $2::text[]) with ordinality as wanted (workspace_id, external_id, place)
  left join lateral (
    select profiles.id
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.external_id = wanted.external_id
    limit 1
  ) as profiles on true`;

/** Who goes by each external id, in their order; null where nobody does. */
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

/** Most profiles that are looked at per address: with as many, there may be more. */
export const MAX_SHARING = 100;

/** Most profiles on one address that can still name one of them. */
export const MAX_HOLDERS = 500;

/** Rows of one profile's summaries that are looked at for when it was updated last: most, and least. */
const MOST_NAMES = 500;
const LEAST_NAMES = 10;

/** Rows of each summary that are looked at for all who share an address, about. */
const MAX_ROWS = 5000;

/** A row of `sharingStatement`: `holders` are counted up to one more than MAX_HOLDERS. */
export interface SharingRow extends ProfileRow {
  holders: number;
}

/** When the profile received the last of its summarised events or purchases. */
function lastOf(summaries: 'event_summaries' | 'purchase_summaries'): string {
  return `(
        select max(latest.updated_at)
        from (
          select ${summaries}.updated_at from ${summaries}
          where ${summaries}.workspace_id = profiles.workspace_id and ${summaries}.profile_id = profiles.id
          limit greatest(${LEAST_NAMES}, least(${MOST_NAMES}, ${MAX_ROWS} / profiles.holders))) as latest)`;
}

/**
 * When a profile was updated last, by an attribute, an event or a purchase; for a table aliased `profiles` that has
 * `holders`, as `holdersOf` makes it. The more share an address, the fewer names of events and products are looked at.
 * An address of more than may be named by it tells nobody: there attributes alone count.
 */
export const lastUpdated = `case when profiles.holders > ${MAX_HOLDERS} then profiles.updated_at
        else greatest(profiles.updated_at, ${lastOf('event_summaries')}, ${lastOf('purchase_summaries')}) end`;

/**
 * Those who have an address, in no order, by the index on that column; each with `holders`, how many they are.
 *
 * @param address SQL: the workspace and the address that are wanted
 * @param condition SQL: what a row must fulfil besides
 * @param most rows at most
 */
export function holdersOf(
  { column, workspaceId, address }: { column: 'email' | 'phone'; workspaceId: string; address: string },
  condition: string,
  most: number,
): string {
  return `
      select profiles.*, count(*) over () as holders
      from (
        select ${holderColumns}
        from profiles
        where profiles.workspace_id = ${workspaceId}
          and profiles.${column} = ${address}
          and ${condition}
        limit ${most}
      ) as profiles`;
}

/** What anybody asks about who shares an address. */
const holderColumns = ['workspace_id', 'id', 'external_id', 'email', 'phone', 'phone_valid', 'updated_at']
  .map((column) => `profiles.${column}`)
  .join(', ');

/**
 * The profiles that share each address, by the index on that column, then by the primary keys of the summaries;
 * locks nothing. Per address: profiles with an external id first, the most recently updated first among each. An
 * event or a purchase updates a profile too, and only its summary says when.
 *
 * @param column the address: a column of profiles
 * @param condition what a row must fulfil besides, as SQL
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

const findByEmailStatement = sharingStatement('email', 'true');

/** The profiles that share each email address, best match first; MAX_SHARING of them at most. */
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

const findByPhoneStatement = sharingStatement('phone', 'profiles.phone_valid');

/** The profiles that share each valid phone number, best match first; MAX_SHARING of them at most. */
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

const statementOf = (column: 'email' | 'phone', condition: string) => `
  select ${profileColumns}, wanted.address
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, address)
  cross join lateral (
    select profiles.*, ${lastUpdated} as seen
    from (${holdersOf({ column, ...wanted }, condition, MAX_HOLDERS + 1)}
    ) as profiles
  ) as profiles
  order by wanted.address, profiles.seen, profiles.id`;

const statements = {
  email: statementOf('email', 'true'),
  phone: statementOf('phone', 'profiles.phone_valid'),
};

/**
 * Everyone who has each address, the one updated longest ago first; by the index on the column, then by the
 * primary keys of the summaries. More than MAX_HOLDERS of one address means that there may be still more.
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
