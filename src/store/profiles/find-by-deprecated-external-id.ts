import { textArray, uuidArray } from '../arrays.ts';
import type { Connection, Pool } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** By the primary keys of deprecated_external_ids and profiles; locks nothing. */
const statement = `
  select ${profileColumns}, wanted.external_id as "deprecatedId"
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, external_id)
  join deprecated_external_ids
    on deprecated_external_ids.workspace_id = wanted.workspace_id
    and deprecated_external_ids.external_id = wanted.external_id
  join profiles
    on profiles.workspace_id = deprecated_external_ids.workspace_id
    and profiles.id = deprecated_external_ids.profile_id`;

/** Those whom external ids named before they were renamed. */
export async function findByDeprecatedExternalId(
  tx: Pick<Connection | Pool, 'query'>,
  workspaceIds: string[],
  externalIds: string[],
): Promise<(ProfileRow & { deprecatedId: string })[]> {
  const { rows } = await tx.query<ProfileRow & { deprecatedId: string }>({
    name: 'find-by-deprecated-external-id',
    text: statement,
    values: [uuidArray(workspaceIds, (id) => id), textArray(externalIds, (id) => id)],
  });
  return rows;
}
