import type { Connection } from '../database.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/** By push_tokens_profile. */
const statement = `
  update push_tokens set profile_id = pairs.kept_id
  from ${pairsTable}
  where push_tokens.workspace_id = pairs.workspace_id
    and push_tokens.profile_id = pairs.merged_id`;

export async function movePushTokens(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'move-push-tokens', text: statement, values: pairValues(pairs) });
}
