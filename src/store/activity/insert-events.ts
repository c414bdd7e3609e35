import type { Json } from '../../profile/json.ts';
import type { Connection } from '../database.ts';

export interface EventRow {
  workspace_id: string;
  id: string;
  profile_id: string;
  name: string;
  /** ISO 8601. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
}

/** Appends; an event that is there already stays as it is. */
const statement = `
  insert into events (workspace_id, id, profile_id, name, "time", app_id, properties)
  select given.workspace_id, given.id, given.profile_id, given.name, given."time", given.app_id, given.properties
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, id uuid, profile_id uuid, name text, "time" timestamptz, app_id text, properties jsonb)
  on conflict (workspace_id, id) do nothing`;

export async function insertEvents(tx: Connection, events: EventRow[]): Promise<void> {
  await tx.query({ name: 'insert-events', text: statement, values: [JSON.stringify(events)] });
}
