import type { Json, JsonText } from '../profile/json.ts';
import { mergeRules } from '../profile/merge-rules.ts';
import { countGivenPurchases } from './activity-series.ts';
import { numerics } from './arrays.ts';
import { elementsOf, integerColumn, jsonColumn, textColumn, timeColumn, uuidColumn } from './columns.ts';
import type { Connection } from './database.ts';
import type { Recorded } from './events.ts';
import { type MergePair, mergedColumns, pairsTable, pairValues } from './merges.ts';

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
  app_id: string | undefined;
  properties: Record<string, Json> | JsonText | undefined;
  /** Place in the batch. */
  ordinal: number;
  /** Through which it came. */
  lane: number;
}

/** Appends the purchases of `given`. */
export const appendPurchases = (given: string) => `
    insert into purchases (
      workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)
    select
      given.workspace_id, given.id, given.profile_id, given.product_id, given.currency, given.price, given.quantity,
      given."time", given.app_id, given.properties
    from ${given}`;

/**
 * Adds the purchases of `given` to the summaries of their profiles, as `summarizeEvents` does. Money is multiplied and
 * added up here, where it is exact.
 *
 * @param now of the parameter that says when
 */
export const summarizePurchases = (given: string, now: string) => `
  insert into purchase_summaries (
    workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
  select
    given.workspace_id, given.profile_id, given.product_id, given.currency, min(given."time"), max(given."time"),
    sum(given.quantity), sum(given.price * given.quantity),
    ${now}::timestamptz + max(given.ordinal) * interval '1 microsecond'
  from ${given}
  group by given.workspace_id, given.profile_id, given.product_id, given.currency
  order by given.workspace_id, given.profile_id, given.product_id, given.currency
  on conflict (workspace_id, profile_id, product_id, currency) do update set
    first = least(purchase_summaries.first, excluded.first),
    last = greatest(purchase_summaries.last, excluded.last),
    count = purchase_summaries.count + excluded.count,
    revenue = purchase_summaries.revenue + excluded.revenue,
    updated_at = excluded.updated_at`;

/** Appends the purchases, and adds them to the summaries of their profiles and to the series, as `recordEvents` does. */
const recordPurchasesStatement = `
  with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::numeric[], $7::integer[],
      $8::timestamptz[], $9::text[], $10::jsonb[], $11::integer[], $12::integer[])
      as given (
        workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties, ordinal, lane)
  ), appended as (${appendPurchases('given')}
  ), counted as (${countGivenPurchases}
  )${summarizePurchases('given', '$13')}`;

/**
 * @returns their ids, which are there before the answer is
 * @throws 23505 for a purchase that the profile has already: no id is applied twice
 */
export function recordPurchases(tx: Connection, purchases: PurchaseRow[], now: string): Recorded {
  const rows = purchases.length;
  const [workspaceIds, ids, profileIds] = [uuidColumn(rows), uuidColumn(rows), uuidColumn(rows)];
  const [products, currencies, appIds] = [textColumn(rows), textColumn(rows), textColumn(rows)];
  const [quantities, ordinals, lanes] = [integerColumn(rows), integerColumn(rows), integerColumn(rows)];
  const [times, properties] = [timeColumn(rows), jsonColumn(rows)];
  const prices: number[] = [];
  for (const purchase of purchases) {
    workspaceIds.addUuid(purchase.workspace_id);
    ids.addUuid(purchase.id);
    profileIds.addUuid(purchase.profile_id);
    products.addText(purchase.product_id);
    currencies.addText(purchase.currency);
    prices.push(purchase.price);
    quantities.addInteger(purchase.quantity);
    times.addTime(purchase.time);
    appIds.addText(purchase.app_id);
    properties.addJson(purchase.properties);
    ordinals.addInteger(purchase.ordinal);
    lanes.addInteger(purchase.lane);
  }
  const what = [workspaceIds, ids, profileIds, products, currencies].map((column) => column.toParameter());
  const more = [quantities, times, appIds, properties, ordinals, lanes];
  const stored = tx.query({
    name: 'record-purchases',
    text: recordPurchasesStatement,
    values: [...what, numerics(prices), ...more.map((column) => column.toParameter()), now],
  });
  return { profileIds: elementsOf(what[2]!), ids: elementsOf(what[1]!), stored };
}

/**
 * By primary key: takes rows of the merged profiles away and adds them to those of the kept ones, at most $4 of each
 * profile. Sorted, so that two lanes lock in one order.
 */
const mergePurchaseSummariesStatement = `
  with slice as materialized (
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, summary.product_id, summary.currency
    from ${pairsTable}
    cross join lateral (
      select purchase_summaries.product_id, purchase_summaries.currency
      from purchase_summaries
      where purchase_summaries.workspace_id = pairs.workspace_id
        and purchase_summaries.profile_id = pairs.merged_id
      limit $4
    ) as summary
  ), taken as (
    delete from purchase_summaries using slice
    where purchase_summaries.workspace_id = slice.workspace_id
      and purchase_summaries.profile_id = slice.merged_id
      and purchase_summaries.product_id = slice.product_id
      and purchase_summaries.currency = slice.currency
    returning purchase_summaries.*, slice.kept_id
  )
  insert into purchase_summaries (workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
  select
    taken.workspace_id, taken.kept_id, taken.product_id, taken.currency,
    min(taken.first), max(taken.last), sum(taken.count), sum(taken.revenue), max(taken.updated_at)
  from taken
  group by taken.workspace_id, taken.kept_id, taken.product_id, taken.currency
  order by taken.workspace_id, taken.kept_id, taken.product_id, taken.currency
  on conflict (workspace_id, profile_id, product_id, currency) do update set
    ${mergedColumns(mergeRules.purchase_summaries, { kept: 'purchase_summaries', merged: 'excluded' })}`;

/** @returns how many rows of the kept profiles were written */
export async function mergePurchaseSummaries(
  tx: Connection,
  pairs: MergePair[],
  rowsOfEach: number,
): Promise<number> {
  const values = [...pairValues(pairs), rowsOfEach];
  const { rowCount } = await tx.query({
    name: 'merge-purchase-summaries',
    text: mergePurchaseSummariesStatement,
    values,
  });
  return rowCount ?? 0;
}
