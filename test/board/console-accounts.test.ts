import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createAccount, createCompany } from '../setup/access.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { DEFAULT_COMPANY, PASSWORD, type Visitor } from './people.ts';

let scene: Console;
let admin: Visitor;
beforeAll(async () => {
  scene = await openConsole();
  admin = (await scene.people.arrive(['admin'])).visitor;
});
afterAll(() => scene.installation.stop());

const pool = () => scene.installation.database.pool;
const actionsAbout = async (subject: string) =>
  (await searchAudit(pool(), { subject, limit: 50 })).rows.map(({ action }) => action).reverse();
const invite = async (id: string, visitor = admin) => {
  const answer = await post(visitor, `/accounts/${id}`, { action: 'invite' });
  const text = await answer.text();
  return { status: answer.status, text, link: /https?:[^<]+\/invitation\?token=[\w-]{43}/.exec(text)?.[0] };
};

test('an invitation is shown once, works, and can be revoked before it is accepted', async () => {
  const email = `${uuidv7()}@example.com`;
  const id = await createAccount(pool() as never, DEFAULT_COMPANY, email);
  const first = await invite(id);
  const second = await invite(id);
  expect(second.link).toMatch(new RegExp(`^${scene.board.url}/invitation`));
  const statusOf = async (link: string) =>
    (await createVisitor(scene.board).get(link.replace(scene.board.url, ''))).status;
  // The second invitation replaces the first.
  expect([await statusOf(first.link!), await statusOf(second.link!)]).toEqual([410, 200]);
  const { text } = await page(admin, `/accounts/${id}`);
  expect(text).toContain('invited');
  for (const path of [`/accounts/${id}`, '/audit', '/audit.csv'])
    expect([path, (await page(admin, path)).text.includes(second.link!.split('=')[1]!)]).toEqual([
      path,
      false,
    ]);
  for (let press = 0; press < 2; press++)
    await post(admin, `/accounts/${id}`, { action: 'revoke-invitation' });
  expect(await statusOf(second.link!)).toBe(410);
  expect(await actionsAbout(id)).toEqual(['invitations.create', 'invitations.create', 'invitations.revoke']);
});

test('an invitation with a role gives its permissions in the workspace', async () => {
  const form = await page(admin, '/accounts');
  expect(form.text).toContain('Viewer: sees users with masked values');
  expect(form.text).toMatch(/<select name="workspace".*<option value="shop">shop<\/option>/s);
  const given = { company: DEFAULT_COMPANY, given_name: 'Grace', family_name: 'Hopper' };
  const sent = { ...given, email: `${uuidv7()}@example.com`, role: 'viewer' };
  const unnamed = await post(admin, '/accounts', sent);
  expect([unnamed.status, await unnamed.text()]).toEqual([
    400,
    expect.stringContaining('The company has several workspaces; name the workspace of the role.'),
  ]);
  const lone = await post(admin, '/accounts', { ...sent, role: '', workspace: 'shop' });
  expect([lone.status, await lone.text()]).toEqual([
    400,
    expect.stringContaining('A workspace needs a role'),
  ]);
  const answer = await post(admin, '/accounts', { ...sent, workspace: 'shop' });
  const text = await answer.text();
  expect(text).toMatch(/Send the link only to [^ ]+: .* valid until [A-Z][a-z]{2} \d{1,2}, \d\d:\d\d UTC/);
  const link = /data-copy="([^"]+)" data-copy-name="the link"/.exec(text)?.[1];
  expect(link).toContain('/invitation?token=');
  const id = /href="\/accounts\/([0-9a-f-]{36})"/.exec(text)![1]!;
  const [account] = (await scene.query('select app_groups as groups from accounts where id = $1', id)) as {
    groups: unknown;
  }[];
  expect(account!.groups).toEqual([
    {
      workspace: scene.shop,
      permissions: expect.arrayContaining(['view_user_profile', 'view_segments']),
      teams: [],
    },
  ]);
  const visitor = createVisitor(scene.board);
  const token = new URL(link!).searchParams.get('token')!;
  await visitor.send('POST', '/invitation', {
    body: new URLSearchParams({ token, password: PASSWORD, again: PASSWORD }),
  });
  await visitor.signIn(sent.email, PASSWORD);
  const users = await page(visitor, '/users?workspace=shop');
  expect([users.status, users.text.includes('ada@gmail.com')]).toEqual([200, false]);
  expect((await page(visitor, '/accounts')).status).toBe(403);
});

test('the form of a permission set links to the creation of the first one', async () => {
  const company = await createCompany(pool() as never, 'without permission sets');
  const id = await createAccount(pool() as never, company, `${uuidv7()}@example.com`);
  const { text } = await page(scene.operator, `/accounts/${id}`);
  expect(text).toContain('There is none yet. <a href="/permission-sets#create">Create a permission set</a>');
});

test('an inactive account cannot be invited', async () => {
  const { id } = await scene.people.arrive();
  await scene.query('update accounts set active = false where id = $1', id);
  expect((await invite(id)).status).toBe(409);
  expect(await actionsAbout(id)).toEqual(['sessions.begin']);
});

test('all sessions of an account can be ended at once', async () => {
  const { id, email, visitor } = await scene.people.arrive();
  const second = createVisitor(scene.board);
  await second.signIn(email, PASSWORD);
  await post(admin, `/accounts/${id}`, { action: 'end-sessions' });
  for (const one of [visitor, second]) expect((await one.get('/queues/api/queues')).status).toBe(401);
  expect((await actionsAbout(id)).filter((one) => one === 'sessions.end')).toHaveLength(2);
});

test('accounts and permission sets of another company cannot be listed, shown or changed', async () => {
  const company = await createCompany(pool() as never, `company-${uuidv7()}`);
  const email = `stranger-${uuidv7()}@example.com`;
  const id = await createAccount(pool() as never, company, email);
  const set = uuidv7();
  await scene.query(
    "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'theirs alone', '{admin}')",
    ...[set, company],
  );
  for (const path of ['/accounts', `/accounts?email=${email}`, '/permission-sets'])
    expect([
      path,
      (await page(admin, path)).text
        .replace(/value="[^"]*"/g, '')
        .includes(path === '/permission-sets' ? 'theirs alone' : `>${email}<`),
    ]).toEqual([path, false]);
  for (const path of [
    `/accounts?company=${company}`,
    `/permission-sets?company=${company}`,
    `/accounts/${id}`,
  ])
    expect([path, (await page(admin, path)).status]).toEqual([path, 404]);
  for (const action of ['invite', 'revoke-invitation', 'end-sessions'])
    expect((await post(admin, `/accounts/${id}`, { action })).status).toBe(404);
  expect(await actionsAbout(id)).toEqual([]);
  expect((await page(scene.operator, `/accounts?company=${company}`)).text).toContain(`>${email}<`);
  expect((await page(scene.operator, `/permission-sets?company=${company}`)).text).toContain('theirs alone');
});

test("an account's page names its permissions, sets and teams, and escapes markup", async () => {
  const [team, set] = [uuidv7(), uuidv7()];
  await scene.query(
    'insert into teams (id, workspace_id, name) values ($1, $2, $3)',
    team,
    scene.shop,
    '<b>Berlin</b>',
  );
  await scene.query(
    "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'Analysts', '{view_segments}')",
    ...[set, DEFAULT_COMPANY],
  );
  const appGroups = [
    {
      ...{ workspace: scene.shop, permissions: ['view_pii'], permissionSet: set },
      teams: [{ team, permissions: ['basic_access'] }],
    },
  ];
  const { id } = await scene.people.arrive([], { appGroups });
  const { text } = await page(admin, `/accounts/${id}`);
  for (const expected of ['shop', 'view_pii', 'Analysts', '&lt;b&gt;Berlin&lt;/b&gt; (basic_access)'])
    expect(text).toContain(expected);
  expect(text).not.toContain('<b>Berlin');
});

test('accounts are listed in pages and can be searched by the start of their address', async () => {
  const name = uuidv7().slice(-12);
  for (let n = 0; n < 55; n++)
    await createAccount(pool() as never, DEFAULT_COMPANY, `${name}-${n}@example.com`);
  const openPage = async (path: string) => {
    const { text } = await page(admin, path);
    const next = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    return { count: text.match(new RegExp(`>${name}-\\d+@example.com</a>`, 'g'))?.length ?? 0, next };
  };
  const first = await openPage(`/accounts?email=${name}`);
  expect(first.count).toBe(50);
  expect(await openPage(first.next!)).toEqual({ count: 5, next: undefined });
  expect((await openPage(`/accounts?email=${name}-54`)).count).toBe(1);
  // The link to the next page names the last account of this one, which can be deleted meanwhile.
  const cursor = /before=([0-9a-f-]{36})/.exec(first.next!)![1]!;
  await pool().query('delete from accounts where id = $1', [cursor]);
  expect(await openPage(first.next!)).toEqual({ count: 5, next: undefined });
});
