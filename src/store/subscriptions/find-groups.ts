import type { Connection, Pool } from '../database.ts';

export type Channel = 'email' | 'sms' | 'whatsapp';

export interface Group {
  workspaceId: string;
  id: string;
  channel: Channel;
  archived: boolean;
}

/** By primary key. */
const statement = `
  select
    subscription_groups.workspace_id as "workspaceId",
    subscription_groups.id,
    subscription_groups.channel,
    subscription_groups.archived_at is not null as archived
  from subscription_groups
  where subscription_groups.id = any($1::uuid[])`;

export async function findGroups(tx: Pick<Connection | Pool, 'query'>, ids: string[]): Promise<Group[]> {
  const { rows } = await tx.query<Group>({ name: 'find-groups', text: statement, values: [ids] });
  return rows;
}
