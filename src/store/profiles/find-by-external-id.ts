import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** By the unique index profiles_external_id; locks nothing. */
const statement = `
  select ${profileColumns}
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, external_id)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.external_id = wanted.external_id
    limit 1
  ) as profiles`;

export async function findByExternalId(
  tx: Connection,
  workspaceIds: string[],
  externalIds: string[],
): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-external-id',
    text: statement,
    values: [workspaceIds, externalIds],
  });
  return rows;
}
