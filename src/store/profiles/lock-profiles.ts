import type { Json } from '../../profile/json.ts';
import type { Connection } from '../database.ts';

export interface LockedProfile {
  workspaceId: string;
  id: string;
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
    profiles.email,
    profiles.phone,
    profiles.phone_valid as "phoneValid",
    (
      select jsonb_object_agg(wanted_key.key, profiles.custom_attributes -> wanted_key.key)
      from jsonb_array_elements_text(wanted.keys) as wanted_key (key)
      where profiles.custom_attributes ? wanted_key.key
    ) as custom
  from jsonb_to_recordset($1::jsonb) as wanted (workspace_id uuid, id uuid, keys jsonb)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id
  order by profiles.workspace_id, profiles.id
  for no key update of profiles`;

/** Locks profiles until the transaction ends. `keys`: the custom attributes whose stored value is needed. */
export async function lockProfiles(
  tx: Connection,
  wanted: { workspace_id: string; id: string; keys: string[] }[],
): Promise<LockedProfile[]> {
  const { rows } = await tx.query<LockedProfile>({
    name: 'lock-profiles',
    text: statement,
    values: [JSON.stringify(wanted)],
  });
  return rows;
}
