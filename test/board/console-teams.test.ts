import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createCompany } from '../setup/access.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { DEFAULT_COMPANY, statusOfQueues, type Visitor } from './people.ts';

let scene: Console;
let admin: Visitor;
let company = '';
beforeAll(async () => {
  scene = await openConsole();
  admin = (await scene.people.arrive(['admin'])).visitor;
  company = await createCompany(pool() as never, `company-${uuidv7()}`);
});
afterAll(() => scene.installation.stop());

const pool = () => scene.installation.database.pool;
const auditActions = async (subject: string) =>
  (await searchAudit(pool(), { subject, limit: 50 })).rows.map(({ action }) => action).reverse();

const rowsNamed = async (table: 'teams' | 'permission_sets', name: string) =>
  (await scene.query(`select * from ${table} where name = $1`, name)) as { id: string }[];

/** Submits a form. A field may have several values. */
const send = (visitor: Visitor, path: string, fields: Record<string, string | string[]>) =>
  visitor.send('POST', path, {
    body: new URLSearchParams(
      Object.entries(fields).flatMap(([name, values]) =>
        [values].flat().map((value): [string, string] => [name, value]),
      ),
    ),
    headers: { accept: 'text/html' },
  });

async function makeSet(permissions: string[], of = DEFAULT_COMPANY): Promise<string> {
  const id = uuidv7();
  await scene.query(
    'insert into permission_sets (id, company_id, name, permissions) values ($1, $2, $3, $4)',
    ...[id, of, `set ${id}`, permissions],
  );
  return id;
}

async function makeTeam(workspace: string): Promise<string> {
  const id = uuidv7();
  await scene.query(
    'insert into teams (id, workspace_id, name) values ($1, $2, $3)',
    id,
    workspace,
    `team ${id}`,
  );
  return id;
}

async function workspaceOf(owner: string): Promise<string> {
  const id = uuidv7();
  await scene.query(
    'insert into workspaces (id, name, company_id) values ($1::uuid, $1::text, $2)',
    id,
    owner,
  );
  return id;
}

const groupsOf = async (id: string) =>
  ((await scene.query('select app_groups from accounts where id = $1', id)) as { app_groups: object[] }[])[0]!
    .app_groups;

describe('a permission set', () => {
  test('a permission set is created, changed, assigned, removed and deleted, with audit entries', async () => {
    const name = `Analysts <b>${uuidv7()}`;
    const make = (given = name) =>
      send(admin, '/permission-sets', { name: given, permissions: ['view_user_profile', 'view_pii'] });
    expect((await make()).status).toBe(303);
    expect((await make(` ${name} `)).status).toBe(409);
    const [{ id } = { id: '' }, ...others] = await rowsNamed('permission_sets', name);
    expect(others).toEqual([]);
    const { text } = await page(admin, `/permission-sets/${id}`);
    expect([text.includes('&lt;b&gt;'), text.includes('<b>')]).toEqual([true, false]);

    const { id: account, visitor } = await scene.people.arrive();
    const path = `/users/${scene.user}`;
    expect((await page(visitor, path)).status).toBe(403);
    const give = { action: 'give-permission-set', workspace: 'shop', set: name };
    expect((await post(admin, `/accounts/${account}`, give)).status).toBe(303);
    expect((await page(visitor, path)).text).toContain('ada@gmail.com');
    // A removed permission takes effect immediately.
    await send(admin, `/permission-sets/${id}`, { action: 'change', name, permissions: 'view_user_profile' });
    const masked = await page(visitor, path);
    expect([masked.status, masked.text.includes('ada@gmail.com')]).toEqual([200, false]);

    const remove = () => post(admin, `/permission-sets/${id}`, { action: 'delete' });
    expect((await remove()).status).toBe(409);
    expect((await page(admin, `/permission-sets/${id}`)).text).toContain(`/accounts/${account}`);
    for (let press = 0; press < 2; press++)
      await post(admin, `/accounts/${account}`, { action: 'remove-permissions', workspace: scene.shop });
    expect((await page(visitor, path)).status).toBe(403);
    expect((await remove()).status).toBe(303);
    expect((await remove()).status).toBe(404);
    expect(await auditActions(id)).toEqual([
      ...['permission_sets.create', 'permission_sets.change', 'permission_sets.delete'],
    ]);
    expect((await auditActions(account)).filter((one) => one === 'accounts.change')).toHaveLength(2);
  });

  test.each([
    ['an empty name', { name: ' ' }, ['view_pii']],
    ['a long name', { name: 'x'.repeat(256) }, ['view_pii']],
    ['no permission', { name: 'Nothing' }, []],
    ['an unknown permission', { name: 'Everything' }, ['view_pii', 'everything']],
  ])('a permission set with %s is rejected', async (_, fields, permissions) => {
    const before = await scene.query('select count(*) from permission_sets');
    expect((await send(admin, '/permission-sets', { ...fields, permissions })).status).toBe(400);
    expect(await scene.query('select count(*) from permission_sets')).toEqual(before);
  });
});

describe('a team', () => {
  test('a team is created, renamed, assigned, removed and deleted, with audit entries', async () => {
    const name = `Berlin ${uuidv7()}`;
    const make = { workspace: 'shop', name };
    expect((await post(admin, '/teams', make)).status).toBe(303);
    expect((await post(admin, '/teams', make)).status).toBe(409);
    const [{ id } = { id: '' }] = await rowsNamed('teams', name);
    const next = `Bonn ${uuidv7()}`;
    expect((await post(admin, `/teams/${id}`, { action: 'rename', name: next })).status).toBe(303);

    const { id: account } = await scene.people.arrive();
    const give = { action: 'give-team', workspace: 'shop', team: next };
    expect((await send(admin, `/accounts/${account}`, give)).status).toBe(400);
    expect((await send(admin, `/accounts/${account}`, { ...give, permissions: 'view_pii' })).status).toBe(
      400,
    );
    expect((await send(admin, `/accounts/${account}`, { ...give, permissions: 'basic_access' })).status).toBe(
      303,
    );
    expect(await groupsOf(account)).toEqual([
      { workspace: scene.shop, permissions: [], teams: [{ team: id, permissions: ['basic_access'] }] },
    ]);
    const remove = () => post(admin, `/teams/${id}`, { action: 'delete' });
    expect((await remove()).status).toBe(409);
    await post(admin, `/accounts/${account}`, { action: 'remove-team', team: id });
    expect((await remove()).status).toBe(303);
    expect(await auditActions(id)).toEqual(['teams.create', 'teams.rename', 'teams.delete']);
  });
});

test('the pages of a company without workspaces list no teams, and link teams and sets', async () => {
  const empty = await createCompany(pool() as never, `company-${uuidv7()}`);
  const { visitor } = await scene.people.arrive(['admin'], { company: empty });
  const { status, text } = await page(visitor, '/teams');
  expect([status, text]).toEqual([200, expect.stringContaining('No teams yet')]);
  const accounts = await page(visitor, '/accounts');
  expect(accounts.text).toContain('href="/teams"');
  expect(accounts.text).toContain(`href="/permission-sets?company=${empty}"`);
});

test('a new SCIM token is shown under “Created”, and a rotated one under “Rotate token”', async () => {
  const headingOf = async (path: string, fields: Record<string, string>) =>
    /<h1>([^<]*)</.exec(await (await send(admin, path, fields)).text())?.[1];
  const name = uuidv7();
  expect(await headingOf('/scim-tokens', { origin: 'https://idp.example', name })).toBe('Created');
  const [token] = (await scene.query('select id, identifier from scim_tokens where name = $1', name)) as [
    { id: string; identifier: string },
  ];
  const rotate = { action: 'rotate', confirm: token.identifier };
  expect(await headingOf(`/scim-tokens/${token.id}`, rotate)).toBe('Rotate token');
});

describe('granting permissions', () => {
  test('a workspace administrator can grant nothing, not even to the own account', async () => {
    const appGroups = [{ workspace: scene.shop, permissions: ['admin'], teams: [] }];
    const { id, visitor } = await scene.people.arrive(['add_remove_app_groups'], { appGroups });
    const { id: other } = await scene.people.arrive();
    const set = await makeSet(['admin']);
    for (const account of [id, other])
      for (const workspace of ['shop', 'school']) {
        const give = { action: 'give-permission-set', workspace, set };
        expect((await post(visitor, `/accounts/${account}`, give)).status).toBe(403);
      }
    for (const [path, fields] of [
      ['/permission-sets', { name: 'Mine' }],
      [`/permission-sets/${set}`, { action: 'change', name: 'Mine' }],
      [`/permission-sets/${set}`, { action: 'delete' }],
    ] as const)
      expect((await send(visitor, path, { ...fields, permissions: 'admin' })).status).toBe(403);
    expect([await groupsOf(id), await groupsOf(other)]).toEqual([appGroups, []]);
  });

  test('a company administrator can grant nothing in or to another company', async () => {
    const theirs = await scene.people.arrive(['admin'], { company });
    const own = await scene.people.arrive();
    const [workspace, ownSet, theirSet] = [
      await workspaceOf(company),
      await makeSet(['admin']),
      await makeSet(['admin'], company),
    ];
    const [ownTeam, theirTeam] = [await makeTeam(scene.shop), await makeTeam(workspace)];
    const give = (account: string, fields: Record<string, string>) =>
      send(admin, `/accounts/${account}`, { ...fields, permissions: 'basic_access' });
    const result = [
      await give(own.id, { action: 'give-permission-set', workspace, set: ownSet }),
      await give(own.id, { action: 'give-permission-set', workspace: 'shop', set: theirSet }),
      await give(own.id, { action: 'give-team', workspace, team: theirTeam }),
      await give(own.id, { action: 'give-team', workspace: 'shop', team: theirTeam }),
      await give(own.id, { action: 'give-team', workspace: 'school', team: ownTeam }),
      await give(theirs.id, { action: 'give-permission-set', workspace: 'shop', set: ownSet }),
      await give(theirs.id, { action: 'take', of: workspace }),
      await post(admin, '/teams', { workspace, name: 'Ours' }),
      await send(admin, '/permission-sets', { name: 'Ours', company, permissions: 'admin' }),
      await send(admin, `/permission-sets/${theirSet}`, {
        action: 'change',
        name: 'Ours',
        permissions: 'admin',
      }),
      await post(admin, `/permission-sets/${theirSet}`, { action: 'delete' }),
      await post(admin, `/teams/${theirTeam}`, { action: 'rename', name: 'Ours' }),
      await post(admin, `/teams/${theirTeam}`, { action: 'delete' }),
    ];
    expect(result.map(({ status }) => status)).toEqual([
      ...[400, 400, 400, 400, 400, 404, 404, 400, 404, 404, 404, 404, 404],
    ]);
    expect([await groupsOf(own.id), await groupsOf(theirs.id)]).toEqual([[], []]);
    expect([...(await rowsNamed('teams', 'Ours')), ...(await rowsNamed('permission_sets', 'Ours'))]).toEqual(
      [],
    );
  });

  test('an account that loses its permissions or is deactivated can grant nothing', async () => {
    const { id, visitor } = await scene.people.arrive(['admin']);
    const { id: other } = await scene.people.arrive();
    await scene.query("update accounts set company_permissions = '{}' where id = $1", id);
    const give = { action: 'give-permission-set', workspace: 'shop', set: await makeSet(['admin']) };
    expect((await post(visitor, `/accounts/${other}`, give)).status).toBe(403);
    await scene.query('update accounts set active = false where id = $1', id);
    expect(await statusOfQueues(visitor)).toBe(401);
    expect(await groupsOf(other)).toEqual([]);
  });
});

test('a grant and its audit entry are committed together or not at all', async () => {
  const { id } = await scene.people.arrive();
  const set = await makeSet(['view_pii']);
  await scene.query('alter table audit add constraint full_disk check (false) not valid');
  try {
    const give = { action: 'give-permission-set', workspace: 'shop', set };
    expect((await post(admin, `/accounts/${id}`, give)).status).toBe(500);
    expect((await post(admin, `/permission-sets/${set}`, { action: 'delete' })).status).toBe(500);
  } finally {
    await scene.query('alter table audit drop constraint full_disk');
  }
  expect(await groupsOf(id)).toEqual([]);
  expect(await scene.query('select from permission_sets where id = $1', set)).toHaveLength(1);
});

test('a grant overwrites no concurrent SCIM change, and assigns no deleted permission set', async () => {
  const { id } = await scene.people.arrive();
  const [set, team] = [await makeSet(['view_pii']), await makeTeam(scene.shop)];
  const { grantGroups, deletePermissionSet } = await import('../../src/store/permission-sets.ts');
  const actor = { kind: 'operator', name: 'tester', via: 'console' } as const;
  const gift = { appGroups: [], workspaceId: scene.shop, detail: {} };
  const stale = { id, companyId: DEFAULT_COMPANY, version: 0 };
  expect(await grantGroups(pool(), actor, { ...gift, account: stale, gives: { team } })).toBe('gone');
  await deletePermissionSet(pool(), actor, { id: set, companyId: DEFAULT_COMPANY });
  const [row] = (await scene.query('select version from accounts where id = $1', id)) as {
    version: number;
  }[];
  const account = { ...stale, version: row!.version };
  expect(await grantGroups(pool(), actor, { ...gift, account, gives: { permissionSet: set } })).toBe('gone');
  expect(await grantGroups(pool(), actor, { ...gift, account, gives: { team } })).toBe('done');
});
