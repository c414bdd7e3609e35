import type { Connection } from '../database.ts';
import { keysTable, keyValues, type ProfileKey } from '../identity/pair.ts';

/** By user_aliases_profile; locks nothing. */
const statement = `
  select user_aliases.workspace_id as "workspaceId", user_aliases.profile_id as id, user_aliases.alias_label as label
  from ${keysTable}
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.profile_id = wanted.id`;

/** The labels under which profiles have an alias: one alias per label and user. */
export async function findAliasLabels(
  tx: Connection,
  keys: ProfileKey[],
): Promise<{ workspaceId: string; id: string; label: string }[]> {
  const { rows } = await tx.query({ name: 'find-alias-labels', text: statement, values: keyValues(keys) });
  return rows;
}
