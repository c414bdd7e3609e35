import { randomBytes, scryptSync } from 'node:crypto';
import { expect } from 'vitest';
import type { Board } from '../../src/board/server.ts';
import { newInvitation } from '../../src/store/credentials.ts';
import { createAccount } from '../setup/access.ts';
import { createVisitor } from './browser-session.ts';
import type { Installation } from './installation.ts';

export const DEFAULT_COMPANY = '00000000-0000-7000-8000-000000000001';
export const PASSWORD = 'seven wooden ladders';

/** Cheap scrypt parameters for tests. Accounts that accept an invitation get the real parameters. */
const QUICK = { N: 1024, r: 8, p: 1 };

/** Hashes PASSWORD. The stored hash contains its parameters. */
function quickHash(): string {
  const salt = randomBytes(16);
  const hash = scryptSync(PASSWORD, salt, 32, QUICK);
  const { N, r, p } = QUICK;
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

export type Visitor = ReturnType<typeof createVisitor>;

/** Creates accounts, and clients that are signed in to them. */
export function createPeople({ database: { pool } }: Installation, board: Board) {
  /** Creates an invitation like the command does and returns its token. */
  async function invite(id: string, at = new Date()): Promise<string> {
    const { secret, hash, expiresAt } = newInvitation(at);
    await pool.query('update accounts set invitation_hash = $2, invitation_expires_at = $3 where id = $1', [
      id,
      Buffer.from(hash),
      expiresAt,
    ]);
    return secret;
  }

  const accept = (token: string, password = PASSWORD, again = password) =>
    createVisitor(board).send('POST', '/invitation', {
      body: new URLSearchParams({ token, password, again }),
    });

  /** Creates an account with a password and a signed-in client. */
  async function arrive(
    companyPermissions: string[] = [],
    { company = DEFAULT_COMPANY, appGroups = [] as object[] } = {},
  ) {
    const email = `${randomBytes(4).toString('hex')}@example.com`;
    const id = await createAccount(pool as never, company, email);
    await pool.query(
      'update accounts set company_permissions = $2, password_hash = $3, app_groups = $4 where id = $1',
      [id, companyPermissions, quickHash(), JSON.stringify(appGroups)],
    );
    const visitor = createVisitor(board);
    const answer = await visitor.signIn(email, PASSWORD);
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/home']);
    return { id, email, visitor };
  }

  return { invite, accept, arrive };
}

/** Requests the queues and returns the status. */
export const statusOfQueues = async (visitor: Visitor) => (await visitor.get('/queues/api/queues')).status;

/** SCIM permissions in one workspace, by role. */
export const inWorkspace: Record<string, string[]> = {
  'workspace admin': ['admin'],
  'basic access': ['basic_access'],
  'views users': ['view_user_profile'],
  'views whom': ['view_user_profile', 'view_pii'],
  'only pii': ['view_pii'],
  exports: ['view_user_profile', 'view_pii', 'export_user_data'],
  'exports masked': ['view_user_profile', 'export_user_data'],
  edits: ['view_user_profile', 'edit_user_data'],
  imports: ['view_user_profile', 'import_update_user_data'],
  developer: ['dev_console'],
  'event log': ['view_event_user_log'],
  mends: ['dev_console', 'edit_user_data'],
  syncs: ['edit_cloud_data_ingestion'],
  integrations: ['manage_external_integrations'],
  'streams with addresses': ['edit_cloud_data_ingestion', 'view_pii'],
  'streams with users': ['manage_external_integrations', 'view_user_profile'],
  'makes streams': ['manage_external_integrations', 'view_pii', 'view_user_profile'],
  'sees usage': ['view_usage_data'],
  'sees limits': ['view_api_limits'],
  'manages groups': ['manage_subscription_groups'],
  'sees segments': ['view_segments'],
  'edits segments': ['edit_segments'],
  'archives segments': ['archive_segments'],
  'counts segments': ['view_segments', 'view_user_profile'],
  'views centers': ['view_preference_centers'],
  'edits centers': ['edit_preference_centers'],
  'looks at keys': ['view_api_keys'],
  'makes keys': ['edit_api_keys'],
};
