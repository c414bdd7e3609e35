import type { Json, JsonText } from '../profile/json.ts';
import { mergeRules } from '../profile/merge-rules.ts';
import { countedFrom, countGivenPurchases } from './activity-series.ts';
import { integerArray, jsonArray, numerics, textArray, timeArray, uuidArray } from './arrays.ts';
import { elementsOf, integerColumn, jsonColumn, textColumn, timeColumn, uuidColumn } from './columns.ts';
import type { Connection } from './database.ts';
import type { Recorded } from './events.ts';
import { type MergePair, mergedColumns, pairsTable, pairValues } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

export interface PurchaseRow {
  workspaceId: string;
  id: string;
  profileId: string;
  productId: string;
  currency: string;
  price: number;
  quantity: number;
  /** ISO 8601. */
  time: string;
  appId: string | undefined;
  properties: Record<string, Json> | JsonText | undefined;
  /** Position in the batch. */
  ordinal: number;
  /** Lane from which the purchase was applied. */
  lane: number;
}

/** Appends the purchases of `given`. */
const appendPurchases = (given: string) => `
    insert into purchases (
      workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)
    select
      given.workspace_id, given.id, given.profile_id, given.product_id, given.currency, given.price, given.quantity,
      given."time", given.app_id, given.properties
    from ${given}`;

/**
 * Adds the purchases of `given` to the summaries of their profiles, like `summarizeEvents`. Revenue is
 * calculated here, with exact numeric arithmetic.
 *
 * @param now parameter with the time
 */
const summarizePurchases = (given: string, now: string) => `
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

/**
 * Appends the purchases, and adds them to the summaries of their profiles and to the series, like
 * `recordEvents`.
 */
const recordPurchasesStatement = withCitusForm(`
  with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::numeric[], $7::integer[],
      $8::timestamptz[], $9::text[], $10::jsonb[], $11::integer[], $12::integer[])
      as given (
        workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties, ordinal, lane)
  ), appended as (${appendPurchases('given')}
  ), counted as (${countGivenPurchases}
  )${summarizePurchases('given', '$13')}`);

/**
 * Records purchases.
 *
 * @returns their ids, which are available before the result
 * @throws 23505 if the profile already has one of the purchases: no id is applied twice
 */
export function recordPurchases(tx: Connection, purchases: PurchaseRow[], now: string): Recorded {
  const rows = purchases.length;
  const [workspaceIds, ids, profileIds] = [uuidColumn(rows), uuidColumn(rows), uuidColumn(rows)];
  const [products, currencies, appIds] = [textColumn(rows), textColumn(rows), textColumn(rows)];
  const [quantities, ordinals, lanes] = [integerColumn(rows), integerColumn(rows), integerColumn(rows)];
  const [times, properties] = [timeColumn(rows), jsonColumn(rows)];
  const prices: number[] = [];
  for (const purchase of purchases) {
    workspaceIds.addUuid(purchase.workspaceId);
    ids.addUuid(purchase.id);
    profileIds.addUuid(purchase.profileId);
    products.addText(purchase.productId);
    currencies.addText(purchase.currency);
    prices.push(purchase.price);
    quantities.addInteger(purchase.quantity);
    times.addTime(purchase.time);
    appIds.addText(purchase.appId);
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

const appendPurchasesStatement = withCitusForm(
  appendPurchases(`unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[],
      $6::numeric[], $7::integer[], $8::timestamptz[], $9::text[], $10::jsonb[])
      as given (workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)`),
);

const summarizePurchasesStatement = withCitusForm(
  summarizePurchases(
    `unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::numeric[], $6::integer[], $7::timestamptz[],
      $8::integer[])
    as given (workspace_id, profile_id, product_id, currency, price, quantity, "time", ordinal)`,
    '$9',
  ),
);

const countPurchasesStatement = withCitusForm(
  countedFrom.purchases(`unnest($1::uuid[], $2::text[], $3::text[], $4::numeric[], $5::integer[], $6::timestamptz[], $7::text[],
      $8::integer[]) as given (workspace_id, product_id, currency, price, quantity, "time", app_id, lane)`),
);

/**
 * Same as `recordPurchases` with one statement per table: see `recordEventsApart`.
 *
 * @throws 23505 if the profile already has one of the purchases: no id is applied twice
 */
export function recordPurchasesApart(tx: Connection, purchases: PurchaseRow[], now: string): Recorded {
  const owners = uuidArray(purchases, (purchase) => purchase.workspaceId);
  const profiles = uuidArray(purchases, (purchase) => purchase.profileId);
  const ids = uuidArray(purchases, (purchase) => purchase.id);
  const products = textArray(purchases, (purchase) => purchase.productId);
  const currencies = textArray(purchases, (purchase) => purchase.currency);
  const prices = numerics(purchases.map(({ price }) => price));
  const quantities = integerArray(purchases, (purchase) => purchase.quantity);
  const times = timeArray(purchases, (purchase) => purchase.time);
  const apps = textArray(purchases, (purchase) => purchase.appId);
  const stored = Promise.all([
    tx.query({
      name: 'append-purchases',
      text: appendPurchasesStatement,
      values: [
        ...[owners, ids, profiles, products, currencies, prices],
        ...[quantities, times, apps, jsonArray(purchases, (purchase) => purchase.properties)],
      ],
    }),
    tx.query({
      name: 'summarize-purchases',
      text: summarizePurchasesStatement,
      values: [
        ...[owners, profiles, products, currencies, prices, quantities, times],
        ...[integerArray(purchases, (purchase) => purchase.ordinal), now],
      ],
    }),
    tx.query({
      name: 'count-purchases',
      text: countPurchasesStatement,
      values: [
        ...[owners, products, currencies, prices, quantities, times, apps],
        integerArray(purchases, (purchase) => purchase.lane),
      ],
    }),
  ]);
  return { profileIds: elementsOf(profiles), ids: elementsOf(ids), stored };
}

/**
 * Moves up to $4 rows of each merged profile to the kept one, by primary key. Sorted, so that two lanes lock
 * in the same order.
 */
const mergePurchaseSummariesStatement = withCitusForm(`
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
    ${mergedColumns(mergeRules.purchase_summaries, { kept: 'purchase_summaries', merged: 'excluded' })}`);

/** Merges purchase summaries. @returns the number of rows of kept profiles that were written */
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
