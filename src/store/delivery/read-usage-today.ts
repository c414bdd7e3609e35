import type { Pool } from '../database.ts';

export interface UsageToday {
  workspace: string;
  attributes: number;
  events: number;
  purchases: number;
  identity: number;
  subscriptions: number;
}

/** By the primary key's day within each workspace; one row per workspace and lane. */
const statement = `
  select
    workspaces.name as workspace,
    sum(usage.attributes)::float8 as attributes,
    sum(usage.events)::float8 as events,
    sum(usage.purchases)::float8 as purchases,
    sum(usage.identity)::float8 as identity,
    sum(usage.subscriptions)::float8 as subscriptions
  from usage
  join workspaces on workspaces.id = usage.workspace_id
  where usage.day = (now() at time zone 'UTC')::date
  group by workspaces.name
  order by workspaces.name`;

/** Objects that took effect today (UTC), per workspace. */
export async function readUsageToday(pool: Pool): Promise<UsageToday[]> {
  const { rows } = await pool.query<UsageToday>({ name: 'read-usage-today', text: statement });
  return rows;
}
