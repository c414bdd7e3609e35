import type { Json } from '../../profile/json.ts';
import { integerArray, jsonArray, numericArray, textArray, timeArray, uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';

export interface PurchaseRow {
  workspace_id: string;
  id: string;
  profile_id: string;
  product_id: string;
  currency: string;
  price: number;
  quantity: number;
  /** ISO 8601. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
  /** Place in the batch. */
  ordinal: number;
}

/**
 * Appends the purchases, and adds them to the summaries of their profiles, as `recordEvents` does. Money is
 * multiplied and added up here, where it is exact.
 */
const statement = `
  with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::numeric[], $7::integer[],
      $8::timestamptz[], $9::text[], $10::jsonb[], $11::integer[])
      as given (workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties, ordinal)
  ), appended as (
    insert into purchases (
      workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)
    select
      given.workspace_id, given.id, given.profile_id, given.product_id, given.currency, given.price, given.quantity,
      given."time", given.app_id, given.properties
    from given
  )
  insert into purchase_summaries (
    workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
  select
    given.workspace_id, given.profile_id, given.product_id, given.currency, min(given."time"), max(given."time"),
    sum(given.quantity), sum(given.price * given.quantity),
    $12::timestamptz + max(given.ordinal) * interval '1 microsecond'
  from given
  group by given.workspace_id, given.profile_id, given.product_id, given.currency
  order by given.workspace_id, given.profile_id, given.product_id, given.currency
  on conflict (workspace_id, profile_id, product_id, currency) do update set
    first = least(purchase_summaries.first, excluded.first),
    last = greatest(purchase_summaries.last, excluded.last),
    count = purchase_summaries.count + excluded.count,
    revenue = purchase_summaries.revenue + excluded.revenue,
    updated_at = excluded.updated_at`;

/** @throws 23505 for a purchase that is there already: no id is applied twice */
export async function recordPurchases(tx: Connection, purchases: PurchaseRow[], now: Date): Promise<void> {
  await tx.query({
    name: 'record-purchases',
    text: statement,
    values: [
      uuidArray(purchases, (purchase) => purchase.workspace_id),
      uuidArray(purchases, (purchase) => purchase.id),
      uuidArray(purchases, (purchase) => purchase.profile_id),
      textArray(purchases, (purchase) => purchase.product_id),
      textArray(purchases, (purchase) => purchase.currency),
      numericArray(purchases, (purchase) => purchase.price),
      integerArray(purchases, (purchase) => purchase.quantity),
      timeArray(purchases, (purchase) => purchase.time),
      textArray(purchases, (purchase) => purchase.app_id),
      jsonArray(purchases, (purchase) => purchase.properties),
      integerArray(purchases, (purchase) => purchase.ordinal),
      now,
    ],
  });
}
