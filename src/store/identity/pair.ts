import { uuidArray } from '../arrays.ts';

/** `merged_id` goes into `kept_id` and is gone. In one set no profile stands in two pairs. */
export interface MergePair {
  workspace_id: string;
  merged_id: string;
  kept_id: string;
  /** Of the merge. */
  request_id: string;
}

/** The table of the pairs, from the parameters $1 to $3. */
export const pairsTable =
  'unnest($1::uuid[], $2::uuid[], $3::uuid[]) as pairs (workspace_id, merged_id, kept_id)';

/** The parameters $1 to $3. */
export function pairValues(pairs: MergePair[]): Buffer[] {
  return [
    uuidArray(pairs, (pair) => pair.workspace_id),
    uuidArray(pairs, (pair) => pair.merged_id),
    uuidArray(pairs, (pair) => pair.kept_id),
  ];
}

/** A profile by its key. */
export interface ProfileKey {
  workspace_id: string;
  id: string;
}

/** The table of the keys, from the parameters $1 and $2. */
export const keysTable = 'unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)';

/** The parameters $1 and $2. */
export function keyValues(keys: ProfileKey[]): Buffer[] {
  return [uuidArray(keys, (key) => key.workspace_id), uuidArray(keys, (key) => key.id)];
}
