import type { Connection } from '../database.ts';

export interface EventSummaryRow {
  workspace_id: string;
  profile_id: string;
  name: string;
  /** ISO 8601. */
  first: string;
  last: string;
  count: number;
  /** Place in the batch of the last event. */
  ordinal: number;
}

/**
 * Upserts by primary key, sorted by it, so that two lanes that meet in a profile lock in one order. Each key
 * stands once: an upsert may touch a row only once.
 */
const statement = `
  insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
  select
    added.workspace_id, added.profile_id, added.name, added.first, added.last, added.count,
    $2::timestamptz + added.ordinal * interval '1 microsecond'
  from jsonb_to_recordset($1::jsonb) as added (
    workspace_id uuid, profile_id uuid, name text, first timestamptz, last timestamptz, count bigint, ordinal integer)
  order by added.workspace_id, added.profile_id, added.name
  on conflict (workspace_id, profile_id, name) do update set
    first = least(event_summaries.first, excluded.first),
    last = greatest(event_summaries.last, excluded.last),
    count = event_summaries.count + excluded.count,
    updated_at = excluded.updated_at`;

export async function addEventSummaries(tx: Connection, rows: EventSummaryRow[], now: Date): Promise<void> {
  await tx.query({ name: 'add-event-summaries', text: statement, values: [JSON.stringify(rows), now] });
}
