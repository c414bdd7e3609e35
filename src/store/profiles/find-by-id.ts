import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** By primary key; locks nothing. */
const statement = `
  select ${profileColumns}
  from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id`;

export async function findById(tx: Connection, workspaceIds: string[], ids: string[]): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-id',
    text: statement,
    values: [workspaceIds, ids],
  });
  return rows;
}
