import type { Connection } from '../database.ts';

export interface NewAlias {
  workspace_id: string;
  alias_label: string;
  alias_name: string;
  profile_id: string;
}

/** A pair that another lane gave away meanwhile raises 23505, and the batch is tried again. */
const statement = `
  insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
  select made.workspace_id, made.alias_label, made.alias_name, made.profile_id, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as made (
    workspace_id uuid, alias_label text, alias_name text, profile_id uuid)`;

export async function insertAliases(tx: Connection, aliases: NewAlias[], now: Date): Promise<void> {
  await tx.query({ name: 'insert-aliases', text: statement, values: [JSON.stringify(aliases), now] });
}
