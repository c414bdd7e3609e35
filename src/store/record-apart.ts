import { countedFrom } from './activity-series.ts';
import { integerArray, jsonArray, numerics, textArray, timeArray, uuidArray } from './arrays.ts';
import { elementsOf } from './columns.ts';
import type { Connection } from './database.ts';
import { appendEvents, type EventRow, type Recorded, summarizeEvents } from './events.ts';
import { appendPurchases, type PurchaseRow, summarizePurchases } from './purchases.ts';

/**
 * What `recordEvents` and `recordPurchases` do, as a statement for each table, where tables are distributed. Rows of
 * one that goes into several tables would go by way of every node, and the transaction would need two phases to commit.
 */

const appendEventsStatement =
  appendEvents(`unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[],
      $6::text[], $7::jsonb[]) as given (workspace_id, id, profile_id, name, "time", app_id, properties)`);

const summarizeEventsStatement = summarizeEvents(
  `unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::integer[])
    as given (workspace_id, profile_id, name, "time", ordinal)`,
  '$6',
);

const countEventsStatement =
  countedFrom.events(`unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::integer[])
    as given (workspace_id, name, "time", app_id, lane)`);

/** @throws 23505 for an event that the profile has already: no id is applied twice */
export function recordEventsApart(tx: Connection, events: EventRow[], now: string): Recorded {
  const owners = uuidArray(events, (event) => event.workspace_id);
  const profiles = uuidArray(events, (event) => event.profile_id);
  const ids = uuidArray(events, (event) => event.id);
  const names = textArray(events, (event) => event.name);
  const times = timeArray(events, (event) => event.time);
  const apps = textArray(events, (event) => event.app_id);
  const stored = Promise.all([
    tx.query({
      name: 'append-events',
      text: appendEventsStatement,
      values: [
        ...[owners, ids, profiles, names, times, apps],
        jsonArray(events, (event) => event.properties),
      ],
    }),
    tx.query({
      name: 'summarize-events',
      text: summarizeEventsStatement,
      values: [owners, profiles, names, times, integerArray(events, (event) => event.ordinal), now],
    }),
    tx.query({
      name: 'count-events',
      text: countEventsStatement,
      values: [owners, names, times, apps, integerArray(events, (event) => event.lane)],
    }),
  ]);
  return { profileIds: elementsOf(profiles), ids: elementsOf(ids), stored };
}

const appendPurchasesStatement =
  appendPurchases(`unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[],
      $6::numeric[], $7::integer[], $8::timestamptz[], $9::text[], $10::jsonb[])
      as given (workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)`);

const summarizePurchasesStatement = summarizePurchases(
  `unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::numeric[], $6::integer[], $7::timestamptz[],
      $8::integer[])
    as given (workspace_id, profile_id, product_id, currency, price, quantity, "time", ordinal)`,
  '$9',
);

const countPurchasesStatement =
  countedFrom.purchases(`unnest($1::uuid[], $2::text[], $3::text[], $4::numeric[], $5::integer[], $6::timestamptz[], $7::text[],
      $8::integer[]) as given (workspace_id, product_id, currency, price, quantity, "time", app_id, lane)`);

/** @throws 23505 for a purchase that the profile has already: no id is applied twice */
export function recordPurchasesApart(tx: Connection, purchases: PurchaseRow[], now: string): Recorded {
  const owners = uuidArray(purchases, (purchase) => purchase.workspace_id);
  const profiles = uuidArray(purchases, (purchase) => purchase.profile_id);
  const ids = uuidArray(purchases, (purchase) => purchase.id);
  const products = textArray(purchases, (purchase) => purchase.product_id);
  const currencies = textArray(purchases, (purchase) => purchase.currency);
  const prices = numerics(purchases.map(({ price }) => price));
  const quantities = integerArray(purchases, (purchase) => purchase.quantity);
  const times = timeArray(purchases, (purchase) => purchase.time);
  const apps = textArray(purchases, (purchase) => purchase.app_id);
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
