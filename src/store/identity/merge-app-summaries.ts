import { mergeRules } from '../../profile/merge-rules.ts';
import type { Connection } from '../database.ts';
import { mergedColumns } from './merge-sql.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/** By primary key. Sessions of an app that the kept profile has not used are not merged. */
const statement = `
  update app_summaries set
    ${mergedColumns(mergeRules.app_summaries, 'app_summaries', 'merged')}
  from ${pairsTable}
  join app_summaries as merged
    on merged.workspace_id = pairs.workspace_id
    and merged.profile_id = pairs.merged_id
  where app_summaries.workspace_id = pairs.workspace_id
    and app_summaries.profile_id = pairs.kept_id
    and app_summaries.app_id = merged.app_id`;

export async function mergeAppSummaries(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'merge-app-summaries', text: statement, values: pairValues(pairs) });
}
