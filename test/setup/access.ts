import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { EXAMPLE_INTEGRATION } from '../../src/operations/cdi/schemas.ts';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { newScimToken } from '../../src/store/credentials.ts';
import { type ApiRequest, exampleOf } from './api.ts';
import { seedExamples } from './examples.ts';
import { createIntegration } from './integrations.ts';
import { createGroup, type TestWorkspace } from './workspace.ts';

/** X-Request-Origin of SCIM requests in tests. */
export const ORIGIN = 'https://idp.example';

/** Creates a company. @returns its id */
export async function createCompany(pool: pg.Pool, name: string): Promise<string> {
  const id = uuidv7();
  await pool.query('insert into companies (id, name) values ($1, $2)', [id, name]);
  return id;
}

/** Creates a SCIM token of the company. @returns its secret */
export async function createScimToken(
  pool: pg.Pool,
  companyId: string,
  { origin = ORIGIN, allowlist = [] as string[] } = {},
): Promise<string> {
  const { secret, identifier, hash } = newScimToken();
  await pool.query(
    `insert into scim_tokens (id, company_id, name, identifier, token_hash, origin, ip_allowlist)
     values ($1, $2, 'test', $3, $4, $5, $6)`,
    [uuidv7(), companyId, identifier, hash, origin, allowlist],
  );
  return secret;
}

/** Returns the company that owns a workspace. */
export async function companyOf(pool: pg.Pool, workspaceId: string): Promise<string> {
  const { rows } = await pool.query('select company_id from workspaces where id = $1', [workspaceId]);
  return rows[0].company_id;
}

/** Creates an account of the company. @returns its id */
export async function createAccount(
  pool: pg.Pool,
  companyId: string,
  email = `${uuidv7()}@example.com`,
): Promise<string> {
  const id = uuidv7();
  await pool.query(
    `insert into accounts (id, company_id, user_name, email, given_name, family_name, department)
     values ($1, $2, $3, lower($3), 'Ada', 'Lovelace', 'engineering')`,
    [id, companyId, email],
  );
  return id;
}

/**
 * Creates credentials for an operation, and a request that it accepts: its documented example, adapted to the
 * rows in the
 * store.
 */
export function createAccess(pool: pg.Pool) {
  const tokens = new Map<string, string>();
  const groups = new Map<string, Promise<string>>();

  /**
   * Creates the rows that the examples refer to, once per workspace. @returns the id of their subscription
   * group
   */
  async function prepare(workspaceId: string): Promise<string> {
    await seedExamples(pool, workspaceId);
    return createGroup(pool, workspaceId, 'email');
  }

  return {
    /**
     * Returns the key or token that opens the operation for a workspace, with the headers that it requires.
     */
    async admit(operation: Operation, { id, key }: TestWorkspace): Promise<ApiRequest & { key: string }> {
      if (operation.auth !== 'scim') return { key };
      const token = tokens.get(id) ?? (await createScimToken(pool, await companyOf(pool, id)));
      tokens.set(id, token);
      return { key: token, headers: { 'x-request-origin': ORIGIN } };
    },

    /** Returns the example with the rows that it refers to, and with an unused address. */
    async example(operation: Operation, { id: workspaceId }: TestWorkspace): Promise<ApiRequest> {
      const group = groups.get(workspaceId) ?? prepare(workspaceId);
      groups.set(workspaceId, group);
      const request = exampleOf(operation, await group);
      if (/:integration_id/.test(operation.path)) {
        const integration = await createIntegration(pool, workspaceId);
        request.path = request.path!.replace(EXAMPLE_INTEGRATION, integration);
      }
      // A segment has at most one running export.
      if (operation.id === 'users.export.segment') {
        const segment_id = uuidv7();
        await pool.query(
          `insert into segments (id, workspace_id, name, definition) values ($1::uuid, $2, $1::uuid::text, '{"all": []}')`,
          [segment_id, workspaceId],
        );
        request.json = { ...(request.json as Record<string, Json>), segment_id };
      }
      if (operation.auth !== 'scim') return request;
      const { rows } = await pool.query('select name, company_id from workspaces where id = $1', [
        workspaceId,
      ]);
      const [{ name, company_id: companyId }] = rows;
      if (/\/Users\/:id$/.test(operation.path)) {
        const account = await createAccount(pool, companyId);
        request.path = request.path!.replace(encodeURIComponent(operation.example.params!.id!), account);
      }
      const body = structuredClone(operation.example.body) as Record<string, Json> | undefined;
      if (!body) return request;
      if (body.userName) body.userName = `${uuidv7()}@example.com`;
      if (body.permissions) {
        const { appGroup } = body.permissions as { appGroup: { appGroupName: string }[] };
        appGroup[0]!.appGroupName = name;
      }
      return { ...request, json: body };
    },
  };
}
