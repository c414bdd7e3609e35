import { mergeRules } from '../../profile/merge-rules.ts';
import type { Connection } from '../database.ts';
import { mergedColumns } from './merge-sql.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/**
 * By primary key: takes the merged profiles' rows away and adds them to those of the kept ones. As many rows as
 * there are event names, however often each occurred. Sorted, so that two lanes lock in one order.
 */
const statement = `
  with taken as (
    delete from event_summaries using ${pairsTable}
    where event_summaries.workspace_id = pairs.workspace_id
      and event_summaries.profile_id = pairs.merged_id
    returning event_summaries.*, pairs.kept_id
  )
  insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
  select
    taken.workspace_id, taken.kept_id, taken.name,
    min(taken.first), max(taken.last), sum(taken.count), max(taken.updated_at)
  from taken
  group by taken.workspace_id, taken.kept_id, taken.name
  order by taken.workspace_id, taken.kept_id, taken.name
  on conflict (workspace_id, profile_id, name) do update set
    ${mergedColumns(mergeRules.event_summaries, 'event_summaries', 'excluded')}`;

export async function mergeEventSummaries(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'merge-event-summaries', text: statement, values: pairValues(pairs) });
}
