import type { Connection } from '../database.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/** By user_aliases_profile. One alias per label and user: where both have one, the kept profile's stays. */
const statement = `
  update user_aliases set profile_id = pairs.kept_id
  from ${pairsTable}
  where user_aliases.workspace_id = pairs.workspace_id
    and user_aliases.profile_id = pairs.merged_id
    and not exists (
      select from user_aliases as own
      where own.workspace_id = pairs.workspace_id
        and own.profile_id = pairs.kept_id
        and own.alias_label = user_aliases.alias_label)`;

export async function moveAliases(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'move-aliases', text: statement, values: pairValues(pairs) });
}
