import type { Json } from '../../profile/json.ts';
import { jsonArray, uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface LockedProfile {
  workspaceId: string;
  id: string;
  externalId: string | null;
  email: string | null;
  phone: string | null;
  phoneValid: boolean | null;
  /** The stored values of the custom attributes asked for; one that is not there is missing. */
  custom: Record<string, Json> | null;
}

/**
 * By primary key. Locks the rows in the order of (workspace_id, id), so that two transactions never wait for
 * each other in a circle; `no key`, since keys never change here.
 */
const statement = `
  select
    profiles.workspace_id as "workspaceId",
    profiles.id,
    profiles.external_id as "externalId",
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid",
    case when wanted.keys is not null then (
      select jsonb_object_agg(wanted_key.key, profiles.custom_attributes -> wanted_key.key)
      from jsonb_array_elements_text(wanted.keys) as wanted_key (key)
      where profiles.custom_attributes ? wanted_key.key
    ) end as custom
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[]) as wanted (workspace_id, id, keys)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id
  order by profiles.workspace_id, profiles.id
  for no key update of profiles`;

/** Locks profiles until the transaction ends; one that is gone meanwhile is missing. `keys`: the custom attributes whose stored value is needed. */
export async function lockProfiles(
  tx: Connection,
  wanted: { workspace_id: string; id: string; keys: string[] }[],
): Promise<LockedProfile[]> {
  const { rows } = await tx.query<LockedProfile>({
    name: 'lock-profiles',
    text: statement,
    values: [
      uuidArray(wanted, (profile) => profile.workspace_id),
      uuidArray(wanted, (profile) => profile.id),
      jsonArray(wanted, (profile) => (profile.keys.length > 0 ? profile.keys : undefined)),
    ],
  });
  return rows;
}
