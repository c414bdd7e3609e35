import type { Connection } from '../database.ts';

export interface PushTokenRow {
  workspace_id: string;
  app_id: string;
  token: string;
  device_id: string;
  profile_id: string;
}

/** Upserts by primary key, sorted by it; a token belongs to the profile that named it last. */
const statement = `
  insert into push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)
  select given.workspace_id, given.app_id, given.token, given.device_id, given.profile_id, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, app_id text, token text, device_id text, profile_id uuid)
  order by given.workspace_id, given.app_id, given.token
  on conflict (workspace_id, app_id, token) do update set
    device_id = excluded.device_id,
    profile_id = excluded.profile_id`;

/** Each token stands once. */
export async function upsertPushTokens(tx: Connection, tokens: PushTokenRow[], now: Date): Promise<void> {
  await tx.query({ name: 'upsert-push-tokens', text: statement, values: [JSON.stringify(tokens), now] });
}
