import type { Pool } from './database.ts';

/** What is walked by an export, and behind which key. */
export type Walked =
  | { table: 'profiles'; after: string }
  | { table: 'events' | 'purchases'; after: string; since: string }
  | { table: 'subscription_states' | 'email_addresses' };

const conditions: Record<Walked['table'], string> = {
  profiles: 'and profiles.id > $2::uuid',
  events: 'and events.profile_id >= $2::uuid and events.id >= $3::uuid',
  purchases: 'and purchases.profile_id >= $2::uuid and purchases.id >= $3::uuid',
  subscription_states: '',
  email_addresses: '',
};

/**
 * About how many rows a workspace has there, as Postgres's planner sees it: for a progress bar. Nothing is counted, which
 * of very many rows would take minutes.
 */
export async function estimateRows(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  walked: Walked,
): Promise<number> {
  const { table, after, since } = { after: undefined, since: undefined, ...walked };
  const values = [workspaceId, after, since].filter((value) => value !== undefined);
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>({
    text: `explain (format json) select from ${table} where ${table}.workspace_id = $1::uuid ${conditions[table]}`,
    values,
  });
  return rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
}
