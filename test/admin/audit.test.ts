import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bootstrap } from '../../src/processes/migrate.ts';
import { auditActions } from '../../src/store/audit.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { commit, failedEvent } from '../board/installation.ts';
import { createAccount } from '../setup/access.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let shop: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [shop = ''] = await makeWorkspaces(url, 'shop');
});
afterAll(() => database.stop());

/** Reads the audit entries, oldest first. */
const entries = async (options = '') =>
  (await on.json(`audit --limit 200${options}`)).entries.reverse() as Record<string, unknown>[];
const actions = async () => (await entries()).map(({ action }) => action);

test('records each command line change once, with the system user and without secrets', async () => {
  const company = await on.json('companies create --name Acme');
  await on.json('workspaces create --name school --company Acme');
  await on.json('teams create --workspace school --name Berlin');
  await on.json('permission-sets create --company Acme --name Analyst --permissions basic_access');
  const key = await on.json('keys create --workspace school --permissions users.track --name till');
  await on.json(`keys revoke --id ${key.api_key_id}`);
  await on.json(`keys revoke --id ${key.api_key_id}`);
  const token = await on.json('scim-tokens issue --company Acme --origin https://idp.example');
  const renewed = await on.json(`scim-tokens rotate ${token.scim_token_id}`);
  await on.json(`scim-tokens revoke ${token.scim_token_id}`);
  const group = await on.json('groups create --workspace school --name News --channel email');
  await on.json(`groups archive ${group.subscription_group_id}`);
  await on.json(`groups archive ${group.subscription_group_id}`);
  await on.json('users block --workspace school --external-id ada@example.com');
  await on.json('users block --workspace school --external-id ada@example.com');
  await on.json('users unblock --workspace school --external-id ada@example.com');
  await on.json('limits set --workspace school --bucket users.track --requests 10 --window-seconds 60');
  await on.json('limits reset --workspace school');
  await on.json('limits reset --workspace school');
  const account = await createAccount(database.pool as never, company.company_id, 'grace@example.com');
  const { invitation } = await on.json(`accounts invite ${account}`);
  expect(await actions()).toEqual([
    ...['companies.create', 'workspaces.create', 'teams.create', 'permission_sets.create'],
    ...['api_keys.create', 'api_keys.revoke'],
    ...['scim_tokens.issue', 'scim_tokens.rotate', 'scim_tokens.revoke'],
    ...['subscription_groups.create', 'subscription_groups.archive', 'users.block', 'users.unblock'],
    ...['rate_limits.set', 'rate_limits.reset', 'invitations.create'],
  ]);
  for (const entry of await entries(' --company Acme')) {
    expect(entry).toMatchObject({ actor: userInfo().username, via: 'command_line', address: null });
  }
  expect(await entries(' --company Acme')).toHaveLength(16);
  const all = JSON.stringify(await entries());
  const secrets = [key.api_key, token.scim_token, renewed.scim_token, invitation.split('token=')[1]];
  for (const secret of [...secrets, 'ada@example.com', 'grace@example.com'])
    expect(all).not.toContain(secret);
  const [made] = await entries(` --subject ${key.api_key_id} --action api_keys.create`);
  expect(made).toMatchObject({
    subject: `api_key ${key.api_key_id}`,
    workspace: 'school',
    detail: { name: 'till', permissions: ['users.track'], ip_allowlist: [] },
  });
});

test('records no entry for a rejected command', async () => {
  const before = await actions();
  await on.run('companies create --name Acme');
  await on.run('workspaces create --name shop');
  await on.run('scim-tokens rotate 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f');
  await on.run('users unblock --workspace shop --external-id nobody');
  expect(await actions()).toEqual(before);
});

test('records one entry for each discarded dead letter', async () => {
  const deadLetters = await commit(
    database,
    failedEvent({ workspaceId: shop }),
    failedEvent({ workspaceId: shop }),
  );
  await on.json(['dead-letters', 'discard', ...deadLetters, '--reason', 'a test']);
  await on.run(['dead-letters', 'discard', ...deadLetters, '--reason', 'once more']);
  const result = await entries(' --action dead_letters.discard');
  expect(result.map(({ subject }) => subject).sort()).toEqual(
    deadLetters.map((id) => `dead_letter ${id}`).sort(),
  );
});

test('records creating, changing, running and deleting an integration', async () => {
  const folder = process.env.TMPDIR ?? '/tmp';
  const file = path.join(folder, `audit-${process.pid}`);
  writeFileSync(file, '');
  const made = ['--workspace', 'shop', '--name', 'users', '--kind', 'attributes', '--source', 'folder'];
  await on.json(['integrations', 'create', ...made, '--path', folder, '--format', 'csv', '--draft']);
  await on.json('integrations update users --schedule daily');
  await database.pool.query("update integrations set status = 'active'");
  await on.json('integrations pause users');
  await on.json('integrations resume users');
  await on.json('integrations sync users');
  await on.json('integrations cancel users');
  await database.pool.query("update sync_jobs set status = 'error', finished_at = now()");
  await on.json('integrations delete users');
  const verbs = ['create', 'update', 'pause', 'resume'].map((verb) => `integrations.${verb}`);
  const matches = (await actions()).filter((one) => /^(?:integrations|syncs)\./.test(String(one)));
  expect(matches).toEqual([...verbs, 'syncs.start', 'syncs.cancel', 'integrations.delete']);
  const [changed] = await entries(' --action integrations.update');
  expect(changed!.detail).toEqual({ name: 'users', changed: ['schedule'] });
});

test('rejects an unknown action and lists all actions', async () => {
  const { code, stderr } = await on.run('audit --action nothing');
  expect(code).toBe(1);
  for (const action of Object.keys(auditActions)) expect(stderr).toContain(action);
});

test('records the resources of the first start once, without their secrets', async () => {
  const { url } = await createDatabase();
  const first = openDatabase(url, 1);
  try {
    const given = {
      BOOTSTRAP_API_KEY: 'a secret of the operator',
      ...{
        BOOTSTRAP_SCIM_TOKEN: 'another secret of the operator',
        BOOTSTRAP_SCIM_ORIGIN: 'https://idp.example',
      },
    };
    for (let start = 0; start < 2; start++) await bootstrap(first, given);
    const { entries: auditEntries } = await penstockOn(url).json('audit');
    expect(auditEntries.map(({ action, actor }: Record<string, string>) => [action, actor]).sort()).toEqual(
      ['api_keys.create', 'scim_tokens.issue', 'workspaces.create'].map((action) => [action, 'first start']),
    );
    expect(JSON.stringify(auditEntries)).not.toContain('secret of the operator');
  } finally {
    await first.stop();
  }
});
