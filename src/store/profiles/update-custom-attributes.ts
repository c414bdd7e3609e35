import type { Json } from '../../profile/json.ts';
import type { Connection } from '../database.ts';

export interface CustomAttributesUpdate {
  workspace_id: string;
  id: string;
  /** Attributes to overwrite. */
  set: Record<string, Json>;
  /** Attributes to remove. */
  unset: string[];
  /** Place in the batch of the last object that changed the profile. */
  ordinal: number;
}

/** By primary key; each profile stands once, and its row is locked already. No indexed column changes: HOT. */
const statement = `
  update profiles set
    custom_attributes = (profiles.custom_attributes || changed.set) - changed.unset,
    updated_at = $2::timestamptz + changed.ordinal * interval '1 microsecond'
  from jsonb_to_recordset($1::jsonb) as changed (
    workspace_id uuid, id uuid, set jsonb, unset text[], ordinal integer)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`;

/** Changes custom attributes alone, at half the cost of `updateProfiles`. */
export async function updateCustomAttributes(
  tx: Connection,
  updates: CustomAttributesUpdate[],
  now: Date,
): Promise<void> {
  await tx.query({
    name: 'update-custom-attributes',
    text: statement,
    values: [JSON.stringify(updates), now],
  });
}
