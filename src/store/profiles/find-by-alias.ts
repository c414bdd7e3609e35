import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** By the primary keys of user_aliases and profiles; locks nothing. */
const statement = `
  select ${profileColumns}, wanted.alias_label as "aliasLabel", wanted.alias_name as "aliasName"
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, alias_label, alias_name)
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.alias_label = wanted.alias_label
    and user_aliases.alias_name = wanted.alias_name
  join profiles
    on profiles.workspace_id = user_aliases.workspace_id
    and profiles.id = user_aliases.profile_id`;

export type AliasedProfileRow = ProfileRow & { aliasLabel: string; aliasName: string };

export async function findByAlias(
  tx: Connection,
  workspaceIds: string[],
  labels: string[],
  names: string[],
): Promise<AliasedProfileRow[]> {
  const { rows } = await tx.query<AliasedProfileRow>({
    name: 'find-by-alias',
    text: statement,
    values: [workspaceIds, labels, names],
  });
  return rows;
}
