import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createAccount } from '../setup/access.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let school: { company_id: string };
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  school = await on.json('companies create --name school');
});
afterAll(() => database.stop());

describe('companies', () => {
  test('the company default exists initially, and names are unique', async () => {
    const { companies } = await on.json('companies list');
    expect(companies.map(({ name }: { name: string }) => name)).toEqual(['default', 'school']);
    expectRefusal(await on.run('companies create --name school'), "'school'", 'already exists');
  });

  test('a workspace belongs to default or to the company of --company', async () => {
    expect(await on.json('workspaces create --name shop')).toMatchObject({ company: 'default' });
    const made = await on.json(['workspaces', 'create', '--name', 'class', '--company', school.company_id]);
    expect(made).toMatchObject({ company: 'school' });
    expectRefusal(await on.run('workspaces create --name x --company moon'), "'moon'", 'companies list');
  });
});

describe('teams and permission sets', () => {
  test('a team belongs to a workspace and has a unique name in it', async () => {
    const team = await on.json('teams create --workspace shop --name Berlin');
    expect(team).toEqual({
      team_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      workspace: 'shop',
      name: 'Berlin',
      created_at: expect.any(String),
    });
    const other = await on.json('teams create --workspace class --name Berlin');
    expect(await on.json('teams list --limit 1')).toEqual({ teams: [team], next: team.team_id });
    const nextPage = await on.json(['teams', 'list', '--limit', '1', '--after', team.team_id]);
    expect(nextPage).toEqual({ teams: [other], next: null });
    expect(await on.json('teams list --workspace shop')).toEqual({ teams: [team], next: null });
    expectRefusal(await on.run('teams create --workspace shop --name Berlin'), "'Berlin'");
  });

  test('a permission set has workspace permissions; unknown ones are rejected and named', async () => {
    const words = ['permission-sets', 'create', '--company', 'school', '--name', 'Analyst', '--permissions'];
    const set = await on.json([...words, 'basic_access, view_segments']);
    expect(set).toMatchObject({ company: 'school', permissions: ['basic_access', 'view_segments'] });
    expect((await on.json('permission-sets list --company default')).permission_sets).toEqual([]);
    expect((await on.json('permission-sets list')).permission_sets).toEqual([set]);
    expectRefusal(await on.run([...words, 'basic_access']), "'Analyst'");
    expectRefusal(await on.run([...words, 'fly']), 'Unknown workspace permission: fly', 'view_segments');
  });
});

describe('scim-tokens', () => {
  const stored = async (id: string) =>
    (await database.pool.query('select * from scim_tokens where id = $1', [id])).rows[0];

  test('issue shows the secret once, with origin and allowlist, and stores only its hash', async () => {
    const token = await on.json(
      'scim-tokens issue --company school --origin https://idp.example --name okta --ip-allowlist 10.0.0.0/8',
    );
    expect(token).toEqual({
      scim_token: expect.stringMatching(/^scim_[\w-]{43}$/),
      scim_token_id: expect.any(String),
      company: 'school',
      name: 'okta',
      identifier: token.scim_token.slice(0, 11),
      origin: 'https://idp.example',
      ip_allowlist: ['10.0.0.0/8'],
      created_at: expect.any(String),
      last_seen_at: null,
      revoked_at: null,
    });
    const row = await stored(token.scim_token_id);
    expect(row.token_hash).toEqual(createHash('sha256').update(token.scim_token).digest());
    const listed = await on.run('scim-tokens list --company school');
    expect(listed.stdout).toContain(token.identifier);
    expect(listed.stdout).not.toContain(token.scim_token);
    expect((await on.json('scim-tokens list --company default')).scim_tokens).toEqual([]);
  });

  test('rotate replaces only the secret', async () => {
    const { scim_token: old, ...token } = await on.json('scim-tokens issue --company school --origin o');
    const { scim_token: fresh, ...rotated } = await on.json(['scim-tokens', 'rotate', token.scim_token_id]);
    expect(fresh).not.toBe(old);
    expect(rotated).toEqual({ ...token, identifier: fresh.slice(0, 11) });
    expect((await stored(token.scim_token_id)).token_hash).toEqual(
      createHash('sha256').update(fresh).digest(),
    );
  });

  test('revoke is permanent: a repetition changes nothing, and rotate is rejected', async () => {
    const { scim_token_id: id } = await on.json('scim-tokens issue --company school --origin o');
    const revoked = await on.json(['scim-tokens', 'revoke', id]);
    expect(revoked.revoked_at).toEqual(expect.any(String));
    expect(await on.json(['scim-tokens', 'revoke', id])).toEqual(revoked);
    expectRefusal(await on.run(['scim-tokens', 'rotate', id]), 'revoked');
    expectRefusal(await on.run(['scim-tokens', 'revoke', school.company_id]), 'scim-tokens list');
  });

  test('rejects an origin that an HTTP header cannot contain', async () => {
    expectRefusal(await on.run(['scim-tokens', 'issue', '--company', 'school', '--origin', 'a b']), 'ASCII');
  });
});

describe('accounts', () => {
  test('list and show print accounts without their password hashes', async () => {
    const id = await createAccount(database.pool as never, school.company_id, 'Ada@example.com');
    await database.pool.query("update accounts set password_hash = 'hidden' where id = $1", [id]);
    const { accounts } = await on.json('accounts list --company school');
    expect(accounts).toMatchObject([
      { account_id: id, company: 'school', user_name: 'Ada@example.com', active: true, has_password: true },
    ]);
    const shown = await on.run('accounts show ADA@example.com --json');
    expect(JSON.parse(shown.stdout)).toMatchObject({ account_id: id, app_groups: [] });
    expect(shown.stdout).not.toContain('hidden');
  });

  test('invite prints a link for three days, stores only its hash, and ends the previous link', async () => {
    const invite = () => on.json('accounts invite ada@example.com --board-url https://board.example/');
    const first = await invite();
    const { token } = /^https:\/\/board\.example\/invitation\?token=(?<token>[\w-]{43})$/.exec(
      first.invitation,
    )!.groups as { token: string };
    const hash = async () =>
      (await database.pool.query('select invitation_hash from accounts')).rows[0].invitation_hash;
    expect(await hash()).toEqual(createHash('sha256').update(token).digest());
    expect(Date.parse(first.expires_at) - Date.now()).toBeGreaterThan(2.9 * 86_400_000);
    await invite();
    expect(await hash()).not.toEqual(createHash('sha256').update(token).digest());
  });

  test('requires --company for an ambiguous address and does not invite inactive accounts', async () => {
    const { companies } = await on.json('companies list');
    await createAccount(database.pool as never, companies[0].company_id, 'ada@example.com');
    expectRefusal(await on.run('accounts invite ada@example.com'), '--company', 'school', 'default');
    await database.pool.query('update accounts set active = false');
    expectRefusal(await on.run('accounts invite ada@example.com --company school'), 'not active');
    expectRefusal(await on.run('accounts show nobody@example.com'), "'nobody@example.com'", 'accounts list');
  });
});

test('a list has every account of a company, also accounts with long lists of permissions', async () => {
  const { company_id } = await on.json('companies create --name university');
  for (const name of ['a', 'b', 'c', 'd'])
    await createAccount(database.pool as never, company_id, `${name}_1@example.com`);
  await database.pool.query(
    `update accounts set emails = jsonb_build_array(repeat('x', 1200000)) where company_id = $1`,
    [company_id],
  );
  const { accounts } = await on.json('accounts list --company university');
  expect(accounts).toHaveLength(4);
  expect((await on.json('accounts list --email a%1')).accounts).toEqual([]);
});

describe('accounts', () => {
  test('an account is created with an invitation, gets permissions in a workspace, and loses them', async () => {
    const made = await on.json([
      ...['accounts', 'create', '--company', 'default', '--email', 'Grace@example.com'],
      ...['--given-name', 'Grace', '--family-name', 'Hopper', '--board-url', 'https://board.example/'],
    ]);
    expect(made.invitation).toMatch(/^https:\/\/board\.example\/invitation\?token=[\w-]{43}$/);
    const again = await on.run(
      'accounts create --company default --email grace@example.com --given-name G --family-name H',
    );
    expectRefusal(again, 'has an account with this address');
    const invited = await on.json([
      ...['accounts', 'create', '--company', 'default', '--email', 'support@example.com'],
      ...['--given-name', 'Joan', '--family-name', 'Clarke', '--role', 'support', '--workspace', 'shop'],
    ]);
    const { app_groups: given } = await on.json(`accounts show ${invited.user_name}`);
    expect(given).toEqual([expect.objectContaining({ permissions: expect.arrayContaining(['view_pii']) })]);
    const set = await on.json(
      'permission-sets create --company default --name Sees --permissions view_user_profile',
    );
    const account = 'grace@example.com';
    await on.json(`accounts give-permission-set ${account} --workspace shop --set Sees`);
    const [group] = (await on.json(`accounts show ${account}`)).app_groups;
    expect(group.permissionSet).toBe(set.permission_set_id);
    expectRefusal(
      await on.run(`accounts give-permission-set ${account} --workspace shop --set Moon`),
      'permission set of the company',
    );
    await on.json(`accounts remove-permissions ${account} --workspace shop`);
    expect((await on.json(`accounts show ${account}`)).app_groups).toEqual([]);
    const { accounts } = await on.json('accounts list --email grace');
    expect(accounts.map((one: { user_name: string }) => one.user_name)).toEqual(['Grace@example.com']);
    expect(accounts[0]).not.toHaveProperty('app_groups');
    await on.json(`accounts revoke-invitation ${account}`);
    expect(await on.json(`accounts end-sessions ${account}`)).toMatchObject({ ended: 0 });
  });
});
