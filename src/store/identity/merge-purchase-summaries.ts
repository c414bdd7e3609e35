import { mergeRules } from '../../profile/merge-rules.ts';
import type { Connection } from '../database.ts';
import { mergedColumns } from './merge-sql.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/**
 * By primary key: takes the merged profiles' rows away and adds them to those of the kept ones. As many rows as
 * there are products, however often each occurred. Sorted, so that two lanes lock in one order.
 */
const statement = `
  with taken as (
    delete from purchase_summaries using ${pairsTable}
    where purchase_summaries.workspace_id = pairs.workspace_id
      and purchase_summaries.profile_id = pairs.merged_id
    returning purchase_summaries.*, pairs.kept_id
  )
  insert into purchase_summaries (workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
  select
    taken.workspace_id, taken.kept_id, taken.product_id, taken.currency,
    min(taken.first), max(taken.last), sum(taken.count), sum(taken.revenue), max(taken.updated_at)
  from taken
  group by taken.workspace_id, taken.kept_id, taken.product_id, taken.currency
  order by taken.workspace_id, taken.kept_id, taken.product_id, taken.currency
  on conflict (workspace_id, profile_id, product_id, currency) do update set
    ${mergedColumns(mergeRules.purchase_summaries, 'purchase_summaries', 'excluded')}`;

export async function mergePurchaseSummaries(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'merge-purchase-summaries', text: statement, values: pairValues(pairs) });
}
