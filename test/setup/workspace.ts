import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { permissions } from '../../src/schemas/permissions.ts';
import { newApiKey } from '../../src/store/credentials.ts';

export interface TestWorkspace {
  id: string;
  /** Opens every endpoint. */
  key: string;
}

/** Creates a workspace with one API key that has all permissions. */
export async function createWorkspace(
  pool: pg.Pool,
  name = 'shop',
  allowed: readonly string[] = permissions,
): Promise<TestWorkspace> {
  const id = uuidv7();
  const { secret, identifier, hash } = newApiKey();
  await pool.query('insert into workspaces (id, name) values ($1, $2)', [id, name]);
  await pool.query(
    'insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions) values ($1, $2, $3, $4, $5, $6)',
    [uuidv7(), id, 'test', identifier, hash, allowed],
  );
  return { id, key: secret };
}

/** Creates a subscription group of the workspace. @returns its id */
export async function createGroup(
  pool: pg.Pool,
  workspaceId: string,
  channel: 'email' | 'sms' | 'whatsapp',
  { name = `${channel} news`, archived = false } = {},
): Promise<string> {
  const id = uuidv7();
  await pool.query(
    `insert into subscription_groups (id, workspace_id, name, channel, archived_at)
     values ($1, $2, $3, $4, case when $5 then now() end)`,
    [id, workspaceId, name, channel, archived],
  );
  return id;
}
