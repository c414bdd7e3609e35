import type { Json } from '../profile/json.ts';
import { jsonArray, uuidArray } from './arrays.ts';
import type { Connection } from './database.ts';

/** What a round asks about one profile that has much. */
export interface WantedAttributes {
  workspaceId: string;
  id: string;
  /** Custom attributes whose size is needed. */
  names: string[];
  /** Those whose value is. */
  keys: string[];
}

export interface LargeAttributes {
  workspaceId: string;
  id: string;
  /** Bytes that each takes as it is stored, without its name; one that is not there is missing. */
  sizes: Record<string, number> | null;
  /** Their values; one that is not there is missing. */
  custom: Record<string, Json> | null;
}

/**
 * By primary key; unpacked once for all names of a profile. A scalar that stands alone is wrapped as an array of one: 8
 * bytes more than it takes among others. Values are written as json at once: to build jsonb of them first took twelve
 * to a hundred times as long.
 */
const readLargeAttributesStatement = `
  select
    profiles.workspace_id as "workspaceId",
    profiles.id,
    (
      select json_object_agg(
        wanted_name.name,
        pg_column_size(unpacked.attributes -> wanted_name.name)
          - case when jsonb_typeof(unpacked.attributes -> wanted_name.name) in ('array', 'object') then 0 else 8 end)
      from jsonb_array_elements_text(wanted.names) as wanted_name (name)
      where unpacked.attributes ? wanted_name.name
    ) as sizes,
    (
      select json_object_agg(wanted_key.key, unpacked.attributes -> wanted_key.key)
      from jsonb_array_elements_text(wanted.keys) as wanted_key (key)
      where unpacked.attributes ? wanted_key.key
    ) as custom
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[]) as wanted (workspace_id, id, names, keys)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id
  cross join lateral (select profiles.custom_attributes || '{}'::jsonb as attributes offset 0) as unpacked`;

/** Reads custom attributes of locked profiles that have many, and how much they take. */
export async function readLargeAttributes(
  tx: Connection,
  wanted: WantedAttributes[],
): Promise<LargeAttributes[]> {
  const { rows } = await tx.query<LargeAttributes>({
    name: 'read-large-attributes',
    text: readLargeAttributesStatement,
    values: [
      uuidArray(wanted, ({ workspaceId }) => workspaceId),
      uuidArray(wanted, ({ id }) => id),
      jsonArray(wanted, ({ names }) => names),
      jsonArray(wanted, ({ keys }) => keys),
    ],
  });
  return rows;
}
