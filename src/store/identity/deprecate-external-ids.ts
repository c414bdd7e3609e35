import { uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface DeprecatedExternalId {
  workspace_id: string;
  external_id: string;
  profile_id: string;
}

const statement = `
  insert into deprecated_external_ids (workspace_id, external_id, profile_id, created_at)
  select given.workspace_id, given.external_id, given.profile_id, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::uuid[]) as given (workspace_id, external_id, profile_id)`;

/** Lets external ids that profiles no longer go by resolve to them still. */
export async function deprecateExternalIds(
  tx: Connection,
  ids: DeprecatedExternalId[],
  now: Date,
): Promise<void> {
  await tx.query({
    name: 'deprecate-external-ids',
    text: statement,
    values: [
      uuidArray(ids, (row) => row.workspace_id),
      ids.map((row) => row.external_id),
      uuidArray(ids, (row) => row.profile_id),
      now,
    ],
  });
}
