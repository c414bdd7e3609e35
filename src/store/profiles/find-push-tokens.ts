import type { Connection } from '../database.ts';

/** By primary key; locks nothing. */
const statement = `
  select push_tokens.workspace_id as "workspaceId", push_tokens.app_id as "appId", push_tokens.token
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, app_id, token)
  join push_tokens
    on push_tokens.workspace_id = wanted.workspace_id
    and push_tokens.app_id = wanted.app_id
    and push_tokens.token = wanted.token`;

/** Those of the tokens that belong to a profile already. */
export async function findPushTokens(
  tx: Connection,
  workspaceIds: string[],
  appIds: string[],
  tokens: string[],
): Promise<{ workspaceId: string; appId: string; token: string }[]> {
  const { rows } = await tx.query({
    name: 'find-push-tokens',
    text: statement,
    values: [workspaceIds, appIds, tokens],
  });
  return rows;
}
