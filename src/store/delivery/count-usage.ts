import type { Connection } from '../database.ts';

export interface UsageRow {
  workspace_id: string;
  lane: number;
  attributes: number;
  events: number;
  purchases: number;
  /** Identity operations. */
  identity: number;
  /** Settings of subscription and email states. */
  subscriptions: number;
}

/** Upserts by primary key, which has the lane in it: no two transactions at once want the same row. */
const statement = `
  insert into usage (workspace_id, day, lane, attributes, events, purchases, identity, subscriptions)
  select counted.workspace_id, (now() at time zone 'UTC')::date, counted.lane, counted.attributes,
    counted.events, counted.purchases, counted.identity, counted.subscriptions
  from jsonb_to_recordset($1::jsonb) as counted (
    workspace_id uuid, lane integer, attributes bigint, events bigint, purchases bigint, identity bigint,
    subscriptions bigint)
  order by counted.workspace_id, counted.lane
  on conflict (workspace_id, day, lane) do update set
    attributes = usage.attributes + excluded.attributes,
    events = usage.events + excluded.events,
    purchases = usage.purchases + excluded.purchases,
    identity = usage.identity + excluded.identity,
    subscriptions = usage.subscriptions + excluded.subscriptions`;

/** Counts objects that took effect against usage. One row per workspace and lane. */
export async function countUsage(tx: Connection, rows: UsageRow[]): Promise<void> {
  await tx.query({ name: 'count-usage', text: statement, values: [JSON.stringify(rows)] });
}
