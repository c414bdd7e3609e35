import type { Connection } from '../database.ts';

export interface PurchaseSummaryRow {
  workspace_id: string;
  profile_id: string;
  product_id: string;
  currency: string;
  /** ISO 8601. */
  first: string;
  last: string;
  /** Sum of the quantities. */
  count: number;
  /** Price and quantity of each purchase, multiplied and added up in SQL, where money is exact. */
  lines: [price: number, quantity: number][];
  /** Place in the batch of the last purchase. */
  ordinal: number;
}

/** Upserts by primary key, sorted by it. Each key stands once. */
const statement = `
  insert into purchase_summaries (
    workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
  select
    added.workspace_id, added.profile_id, added.product_id, added.currency, added.first, added.last, added.count,
    (select sum((line.value ->> 0)::numeric * (line.value ->> 1)::numeric) from jsonb_array_elements(added.lines) as line),
    $2::timestamptz + added.ordinal * interval '1 microsecond'
  from jsonb_to_recordset($1::jsonb) as added (
    workspace_id uuid, profile_id uuid, product_id text, currency text, first timestamptz, last timestamptz,
    count bigint, lines jsonb, ordinal integer)
  order by added.workspace_id, added.profile_id, added.product_id, added.currency
  on conflict (workspace_id, profile_id, product_id, currency) do update set
    first = least(purchase_summaries.first, excluded.first),
    last = greatest(purchase_summaries.last, excluded.last),
    count = purchase_summaries.count + excluded.count,
    revenue = purchase_summaries.revenue + excluded.revenue,
    updated_at = excluded.updated_at`;

export async function addPurchaseSummaries(
  tx: Connection,
  rows: PurchaseSummaryRow[],
  now: Date,
): Promise<void> {
  await tx.query({ name: 'add-purchase-summaries', text: statement, values: [JSON.stringify(rows), now] });
}
