import type { Json } from '../../profile/json.ts';
import { integerArray, jsonArray, uuidArray } from '../arrays.ts';
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

/** What a profile has then: `set` laid over it, without `unset`, which is null for most. */
export const mergedCustomAttributes = `
    case
      when changed.unset is null then profiles.custom_attributes || changed.set
      else (profiles.custom_attributes || changed.set) - array(select jsonb_array_elements_text(changed.unset))
    end`;

/** By primary key; each profile stands once, and its row is locked already. No indexed column changes: HOT. */
const statement = `
  update profiles set
    custom_attributes = ${mergedCustomAttributes},
    updated_at = $6::timestamptz + changed.ordinal * interval '1 microsecond'
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[], $5::integer[])
    as changed (workspace_id, id, set, unset, ordinal)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`;

/** Changes custom attributes alone, at half the cost of `updateProfiles`. */
export async function updateCustomAttributes(
  tx: Connection,
  updates: CustomAttributesUpdate[],
  now: Date,
): Promise<void> {
  await tx.query({ name: 'update-custom-attributes', text: statement, values: customValues(updates, now) });
}

/** The parameters $1 to $6 of a statement that changes custom attributes. */
export function customValues(updates: CustomAttributesUpdate[], now: Date): unknown[] {
  return [
    uuidArray(updates, (update) => update.workspace_id),
    uuidArray(updates, (update) => update.id),
    jsonArray(updates, (update) => update.set),
    jsonArray(updates, (update) => (update.unset.length > 0 ? update.unset : undefined)),
    integerArray(updates, (update) => update.ordinal),
    now,
  ];
}
