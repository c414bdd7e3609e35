import type pg from 'pg';
import type { Json } from '../../src/profile/json.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { companyOf, createCompany, createScimToken, ORIGIN } from '../setup/access.ts';
import { type ApiAnswer, type ApiRequest, send } from '../setup/api.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

export const USER = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const PATCH_OP = 'urn:ietf:params:scim:api:messages:2.0:PatchOp';
export const ERROR = 'urn:ietf:params:scim:api:messages:2.0:Error';

/** An identity provider that manages the accounts of one company. */
export interface Provider {
  companyId: string;
  workspace: TestWorkspace;
  token: string;
  call(method: string, path: string, json?: Json, headers?: Record<string, string>): Promise<ApiAnswer>;
  /** Creates an account and returns it. */
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the resource check its shape
  create(change?: Record<string, Json>): Promise<any>;
  patch(id: string, Operations: Json[], headers?: Record<string, string>): Promise<ApiAnswer>;
}

export interface Scene {
  fleet: Fleet;
  pool: pg.Pool;
  port: number;
  /** Provider of the company `default`, whose workspace is `shop`. */
  provider: Provider;
  /** Another company with a workspace of the given name. */
  createProvider(workspace: string): Promise<Provider>;
  stop(): Promise<void>;
}

let made = 0;

/** Returns a body that is accepted unchanged, with an unused address. */
export function accountOf(workspace: string, change: Record<string, Json> = {}): Record<string, Json> {
  return {
    schemas: [USER],
    userName: `person-${++made}@example.com`,
    name: { givenName: 'Ada', familyName: 'Lovelace' },
    department: 'engineering',
    permissions: {
      companyPermissions: ['manage_company_settings'],
      appGroup: [{ appGroupName: workspace, appGroupPermissions: ['basic_access'] }],
    },
    ...change,
  };
}

/** Starts a web process, and workers if requested, on a new database, with an identity provider. */
export async function createScene(env: Record<string, string> = {}, workers = 0): Promise<Scene> {
  const fleet = await startFleet('postgres', { edges: 1, workers, env });
  const { pool } = fleet;
  const port = fleet.edges[0]!.port;

  async function providerOf(workspace: TestWorkspace, name: string): Promise<Provider> {
    const companyId = await companyOf(pool, workspace.id);
    const token = await createScimToken(pool, companyId);
    const call: Provider['call'] = (method, path, json, headers = {}) => {
      const type = json === undefined ? {} : { 'content-type': 'application/scim+json' };
      const request: ApiRequest = { method, path: `/scim/v2${path}`, key: token, json };
      return send(port, { ...request, headers: { 'x-request-origin': ORIGIN, ...type, ...headers } });
    };
    return {
      companyId,
      workspace,
      token,
      call,
      async create(change = {}) {
        const { status, body } = await call('POST', '/Users', accountOf(name, change));
        if (status !== 201) throw new Error(`${status}: ${JSON.stringify(body)}`);
        return body;
      },
      patch: (id, Operations, headers) =>
        call('PATCH', `/Users/${id}`, { schemas: [PATCH_OP], Operations }, headers),
    };
  }

  return {
    fleet,
    pool,
    port,
    provider: await providerOf(fleet.workspace, 'shop'),
    async createProvider(workspace) {
      const created = await createWorkspace(pool, workspace);
      const company = await createCompany(pool, `company of ${workspace}`);
      await pool.query('update workspaces set company_id = $1 where id = $2', [company, created.id]);
      return providerOf(created, workspace);
    },
    stop: () => fleet.stop(),
  };
}

/** Returns the answer to a rejected request. */
export const refusal = (status: number, detail: unknown, scimType?: string) => ({
  status,
  body: { schemas: [ERROR], ...(scimType && { scimType }), detail, status },
});
