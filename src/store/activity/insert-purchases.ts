import type { Json } from '../../profile/json.ts';
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
}

/** Appends; a purchase that is there already stays as it is. */
const statement = `
  insert into purchases (workspace_id, id, profile_id, product_id, currency, price, quantity, "time", app_id, properties)
  select
    given.workspace_id, given.id, given.profile_id, given.product_id, given.currency, given.price, given.quantity,
    given."time", given.app_id, given.properties
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, id uuid, profile_id uuid, product_id text, currency text, price numeric, quantity integer,
    "time" timestamptz, app_id text, properties jsonb)
  on conflict (workspace_id, id) do nothing`;

export async function insertPurchases(tx: Connection, purchases: PurchaseRow[]): Promise<void> {
  await tx.query({ name: 'insert-purchases', text: statement, values: [JSON.stringify(purchases)] });
}
