import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Caller, DirectOperation } from '../../src/operations/operation.ts';
import { scimUsersCreate } from '../../src/operations/scim.users.create.ts';
import { scimUsersDelete } from '../../src/operations/scim.users.delete.ts';
import { scimUsersPatch } from '../../src/operations/scim.users.patch.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createCompany, createScimToken } from '../setup/access.ts';
import { createDatabase } from '../setup/fixtures.ts';

let database: Database;
let companyId: string;
let tokenId: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  database = openDatabase(url, 2);
  companyId = await createCompany(database.pool as never, 'Acme');
  await createScimToken(database.pool as never, companyId);
  const { rows } = await database.pool.query('select id from scim_tokens');
  tokenId = rows[0].id;
});
afterAll(() => database.stop());

const account = {
  schemas: ['urn:ietf:params:scim:schemas:core:2.0:User'],
  ...{ userName: 'ada@example.com', name: { givenName: 'Ada', familyName: 'Lovelace' } },
  ...{ department: 'engineering', permissions: { companyPermissions: [], appGroup: [] } },
};

/** Calls one operation with the company's token. */
function send(
  operation: DirectOperation,
  { id = '', body = {}, ifMatch = undefined as string | undefined } = {},
) {
  const caller = {
    ...{ companyId, workspaceId: companyId, requestId: uuidv7(), now: Date.now() },
    scimToken: { id: tokenId, address: '192.0.2.7' },
  } as unknown as Caller;
  const request = { baseUrl: '', ...(ifMatch !== undefined && { ifMatch }) };
  return operation.handle(
    caller,
    { body, query: {}, params: { id }, request } as never,
    { database } as never,
  );
}

const auditRows = async (subject: string) =>
  (await searchAudit(database.pool, { subject, limit: 50 })).rows.reverse();

const deactivate = {
  schemas: ['urn:ietf:params:scim:api:messages:2.0:PatchOp'],
  Operations: [{ op: 'replace', path: 'active', value: false }],
};

test('each SCIM change has one audit entry with token and address, without personal data', async () => {
  const made = await send(scimUsersCreate(), { body: account });
  const { id } = made.body as { id: string };
  await expect(send(scimUsersCreate(), { body: account })).rejects.toThrow();
  await send(scimUsersPatch(), { id, body: deactivate });
  // A repetition changes the account no further.
  await send(scimUsersPatch(), { id, body: deactivate });
  await expect(send(scimUsersDelete(), { id, ifMatch: 'W/"1"' })).rejects.toThrow();
  await send(scimUsersDelete(), { id });
  await expect(send(scimUsersDelete(), { id })).rejects.toThrow();
  const entries = await auditRows(id);
  expect(entries.map(({ action, detail }) => [action, detail])).toEqual([
    ['accounts.create', { active: true }],
    ['accounts.change', { changed: ['active'], active: false }],
    ['accounts.delete', {}],
  ]);
  for (const entry of entries)
    expect(entry).toMatchObject({
      ...{ companyId, actorKind: 'scim_token', actorId: tokenId, actorName: 'test' },
      ...{ via: 'scim', address: '192.0.2.7' },
    });
  expect(JSON.stringify(entries)).not.toMatch(/ada@|Lovelace/);
  expect((await searchAudit(database.pool, { companyId, limit: 50 })).rows).toHaveLength(3);
});

test('simultaneous deletes of one account have one audit entry', async () => {
  const made = await send(scimUsersCreate(), { body: { ...account, userName: 'grace@example.com' } });
  const { id } = made.body as { id: string };
  const results = await Promise.allSettled(Array.from({ length: 6 }, () => send(scimUsersDelete(), { id })));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  expect((await auditRows(id)).map(({ action }) => action)).toEqual(['accounts.create', 'accounts.delete']);
});
