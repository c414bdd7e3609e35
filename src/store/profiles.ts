import type { ProfileColumns } from '../profile/attribute-rule.ts';
import type { Json } from '../profile/json.ts';
import { columnNames, standardColumns } from '../profile/standard-columns.ts';
import { jsonArray } from './arrays.ts';
import { listedColumns } from './attribute-changes.ts';
import { booleanColumn, jsonColumn, uuidColumn } from './columns.ts';
import type { Connection } from './database.ts';
import { attributesBytes, LITTLE_BYTES } from './identifiers.ts';
import { keysTable, keyValues, type ProfileKey } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';
import {
  between,
  type CustomAttributesUpdate,
  changedCustomNames,
  customValues,
  mergedCustomAttributes,
  notedChanges,
  requireAll,
} from './profile-attributes.ts';

/** SQL types of the columns, by the types in JSON. `timestamptz` accepts ISO 8601. */
const sqlTypes = {
  text: 'text',
  time: 'timestamptz',
  boolean: 'boolean',
  number: 'double precision',
  json: 'jsonb',
};

/** Returns the names of the standard columns as SQL, each after a prefix. */
const listed = (prefix = '') =>
  columnNames()
    .map((name) => prefix + name)
    .join(', ');

/** The standard columns with their SQL types. */
const typed = columnNames()
  .map((name) => `${name} ${sqlTypes[standardColumns[name].type]}`)
  .join(', ');

/**
 * A row of the JSON parameter. Attributes are top-level members, because a nested object would have to be
 * expanded separately.
 */
export interface NewProfile extends ProfileColumns {
  workspaceId: string;
  id: string;
  externalId: string | null;
  customAttributes: Record<string, Json>;
  /** Entry of the attributes that are set. */
  attributeChanges: string | undefined;
  /** Position in the batch, which orders profiles that one batch creates. */
  ordinal: number;
}

/**
 * Inserts profiles. A second profile for an external id violates the unique index (23505): another lane has
 * created it in the meantime, and the batch is retried.
 */
const insertProfilesStatement = withCitusForm(`
  insert into profiles (
    workspace_id, id, external_id, ${listed()}, email_subscribe, push_subscribe, custom_attributes, attribute_changes,
    created_at, updated_at)
  select
    made."workspaceId", made.id, made."externalId", ${listed('made.')}, made.email_subscribe, made.push_subscribe,
    made."customAttributes", made."attributeChanges",
    $2::timestamptz, $2::timestamptz + made.ordinal * interval '1 microsecond'
  from jsonb_to_recordset($1::jsonb) as made (
    "workspaceId" uuid, id uuid, "externalId" text, ${typed}, email_subscribe text, push_subscribe text,
    "customAttributes" jsonb, "attributeChanges" text, ordinal integer)`);

export async function insertProfiles(tx: Connection, profiles: NewProfile[], now: string): Promise<void> {
  await tx.query({
    name: 'insert-profiles',
    text: insertProfilesStatement,
    values: [JSON.stringify(profiles), now],
  });
}

interface LockedProfile {
  /** Position of the wanted profile, from 1. */
  place: number;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
  /** Stored values of the wanted custom attributes, without missing ones. Null if the profile has `bytes`. */
  custom: Record<string, Json> | null;
  /** Uncompressed size of all custom attributes. Null if it is at most LITTLE_BYTES, or was not requested. */
  bytes: number | null;
}

/**
 * Reads by primary key. Locks rows in the order of (workspace_id, id), so that two transactions cannot
 * deadlock; `no key`, since keys never change here. Attributes are decompressed once for all their keys.
 * Everything is in the select list, because Postgres evaluates it again for a row that another transaction
 * has changed in the meantime.
 */
const lockProfilesStatement = withCitusForm(`
  select
    wanted.place::integer,
    profiles.external_id as "externalId",
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid",
    case when wanted.keys is not null and ${attributesBytes} <= ${LITTLE_BYTES} then (
      select json_object_agg(wanted_key.key, unpacked.attributes -> wanted_key.key)
      from (select profiles.custom_attributes || '{}'::jsonb as attributes offset 0) as unpacked
      cross join lateral jsonb_array_elements_text(wanted.keys) as wanted_key (key)
      where unpacked.attributes ? wanted_key.key
    ) end as custom,
    case when wanted.measured then nullif(greatest(${attributesBytes}, ${LITTLE_BYTES}), ${LITTLE_BYTES}) end as bytes
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::boolean[])
    with ordinality as wanted (workspace_id, id, keys, measured, place)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id
  order by profiles.workspace_id, profiles.id
  for no key update of profiles`);

/**
 * Locks profiles until the transaction ends. Profiles that were removed in the meantime are omitted.
 *
 * @param wanted.keys custom attributes whose stored value is needed; if there are any, the size is needed as
 * well
 * @param wanted.measured whether the size of all attributes is needed
 */
export async function lockProfiles(
  tx: Connection,
  wanted: { profile: { workspaceId: string; id: string }; keys: ReadonlySet<string>; measured: boolean }[],
): Promise<LockedProfile[]> {
  const [workspaceIds, ids] = [uuidColumn(wanted.length), uuidColumn(wanted.length)];
  const [keys, measured] = [jsonColumn(wanted.length), booleanColumn(wanted.length)];
  for (const one of wanted) {
    workspaceIds.addUuid(one.profile.workspaceId);
    ids.addUuid(one.profile.id);
    keys.addJson(one.keys.size > 0 ? [...one.keys] : undefined);
    measured.addBoolean(one.measured);
  }
  const { rows } = await tx.query<LockedProfile>({
    name: 'lock-profiles',
    text: lockProfilesStatement,
    values: [workspaceIds, ids, keys, measured].map((column) => column.toParameter()),
  });
  return rows;
}

export interface ProfileUpdate extends CustomAttributesUpdate {
  /** Columns to overwrite. Omitted columns keep their values. */
  columns: ProfileColumns;
}

/** SQL of the names of all attributes that change. `laid` is the row with the given columns. */
const changedNames = `concat_ws(${between}, ${listedColumns
  .map((name) => `case when laid.${name} is distinct from profiles.${name} then '${name}' end`)
  .join(', ')}, ${changedCustomNames})`;

/**
 * Updates by primary key; a profile may occur only once. jsonb_populate_record overwrites the given columns
 * of the row.
 */
const updateProfilesStatement = withCitusForm(`
  update profiles set
    (${listed()}, email_subscribe, push_subscribe, attribute_changes) = (
      select ${listed('laid.')}, laid.email_subscribe, laid.push_subscribe, ${notedChanges(changedNames)}
      from jsonb_populate_record(profiles, changed.columns) as laid),
    custom_attributes = ${mergedCustomAttributes},
    updated_at = changed.at
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[], $5::timestamptz[], $6::text[], $7::jsonb[])
    as changed (workspace_id, id, set, unset, at, stamp, columns)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`);

/**
 * Changes standard attributes and custom attributes.
 *
 * @throws if one of the profiles no longer exists; a retry of the batch succeeds
 */
export async function updateProfiles(tx: Connection, updates: ProfileUpdate[], now: string): Promise<void> {
  const { rowCount } = await tx.query({
    name: 'update-profiles',
    text: updateProfilesStatement,
    values: [...customValues(updates, now), jsonArray(updates, (update) => update.columns)],
  });
  requireAll(rowCount, updates);
}

const removeProfilesStatement = withCitusForm(`
  delete from profiles
  using ${keysTable}
  where profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id`);

/** Deletes by primary key. */
const removeSearchedStatement = withCitusForm(`
  delete from user_search
  using ${keysTable}
  where user_search.workspace_id = wanted.workspace_id and user_search.profile_id = wanted.id`);

/**
 * Deletes profiles, so that no identifier resolves to them and no search finds them. Their rows are already locked. Dependent rows
 * were moved or erased, or a background job does it. The job also handles events, purchases and summaries,
 * which are written without locking the profile: another lane may have committed rows after a merge moved the
 * others.
 */
export async function removeProfiles(tx: Connection, keys: ProfileKey[]): Promise<void> {
  const values = keyValues(keys);
  // Both are sent in one write, because the caller may send COMMIT before the first is answered.
  await Promise.all([
    tx.query({ name: 'remove-profiles', text: removeProfilesStatement, values }),
    tx.query({ name: 'remove-searched', text: removeSearchedStatement, values }),
  ]);
}
