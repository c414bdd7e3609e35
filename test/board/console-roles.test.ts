import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pages } from '../../src/board/server.ts';
import { createCompany } from '../setup/access.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import { DEFAULT_COMPANY, inWorkspace, type Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

describe('access to each route by role', () => {
  const inShop = (...permissions: string[]) => ({
    appGroups: [{ workspace: scene.shop, permissions, teams: [] }],
  });

  const inShopWith =
    (...permissions: string[]) =>
    async () =>
      (await scene.people.arrive([], inShop(...permissions))).visitor;

  /** Users by role, with their SCIM permissions. */
  const roles: Record<string, () => Promise<Visitor>> = {
    operator: async () => scene.operator,
    'company admin': async () => (await scene.people.arrive(['admin'])).visitor,
    'company settings': async () => (await scene.people.arrive(['manage_company_settings'])).visitor,
    'adds workspaces': async () => (await scene.people.arrive(['add_remove_app_groups'])).visitor,
    ...Object.fromEntries(
      Object.entries(inWorkspace).map(([name, permissions]) => [name, inShopWith(...permissions)]),
    ),
    nothing: async () => (await scene.people.arrive()).visitor,
    'a permission set': async () => {
      const id = uuidv7();
      await scene.query(
        "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'looks at users', '{view_user_profile}')",
        ...[id, DEFAULT_COMPANY],
      );
      const appGroups = [{ workspace: scene.shop, permissions: [], permissionSet: id, teams: [] }];
      return (await scene.people.arrive([], { appGroups })).visitor;
    },
    'a team': async () => {
      const teams = [{ team: uuidv7(), permissions: ['admin', 'view_user_profile'] }];
      const appGroups = [{ workspace: scene.shop, permissions: [], teams }];
      return (await scene.people.arrive([], { appGroups })).visitor;
    },
    'another workspace': async () => {
      const appGroups = [{ workspace: scene.school, permissions: ['admin'], teams: [] }];
      return (await scene.people.arrive([], { appGroups })).visitor;
    },
    'another company': async () => {
      const company = await createCompany(scene.installation.database.pool as never, `company-${uuidv7()}`);
      await scene.query(
        'insert into workspaces (id, name, company_id) values ($1::uuid, $1::text, $2)',
        uuidv7(),
        company,
      );
      return (await scene.people.arrive(['admin'], { company })).visitor;
    },
    'a company’s workspace named to another': async () => {
      const company = await createCompany(scene.installation.database.pool as never, `company-${uuidv7()}`);
      return (await scene.people.arrive([], { company, ...inShop('admin') })).visitor;
    },
  };

  const all = ['operator', 'company admin', 'company settings', 'workspace admin'];
  const anyone = Object.keys(roles);
  const users = [
    ...[...all, 'views users', 'views whom', 'exports', 'exports masked', 'edits', 'imports'],
    ...['a permission set', 'counts segments', 'streams with users', 'makes streams'],
  ];
  const pii = [...all, 'views whom', 'only pii', 'exports', 'streams with addresses', 'makes streams'];
  const piiEditors = all;
  const editors = [...all, 'edits', 'imports'];
  const delivery = [...all, 'developer', 'event log', 'mends'];
  const streamMakers = [...all, 'makes streams'];
  const syncs = [...streamMakers, 'syncs', 'integrations', 'streams with addresses', 'streams with users'];
  /** Roles that administer a company; the last one administers another company. */
  const company = ['operator', 'company admin', 'company settings', 'another company'];
  const groups = [...all, 'manages groups'];
  const segments = [...all, 'sees segments', 'edits segments', 'archives segments', 'counts segments'];
  const centerEditors = [...all, 'edits centers'];
  const centers = [...centerEditors, 'views centers'];
  const usage = [...all, 'sees usage', 'sees limits'];
  const keyMakers = [...all, 'makes keys'];
  const keys = [...keyMakers, 'looks at keys'];
  const ours = company.slice(0, -1);
  const elsewhere = ['another workspace', 'another company'];

  /**
   * Each route: roles that pass, their status, and the status of roles with the right in another workspace or company.
   */
  const routes: [
    route: string,
    path: () => string | Promise<string>,
    passes: string[],
    status: number,
    other: number,
  ][] = [
    ['get /', () => '/', anyone, 200, 200],
    ['post /', () => '/', ['operator'], 400, 403],
    ['get /search', () => '/search?q=a', anyone, 200, 200],
    ['get /home', () => '/home', anyone, 303, 303],
    ['get /history', () => '/history?range=day', anyone, 200, 200],
    ['get /users', () => '/users?q=user-1', users, 200, 200],
    ['get /users/:service_id', () => `/users/${scene.user}`, users, 200, 404],
    ['post /users/:service_id', () => `/users/${scene.user}`, editors, 400, 404],
    [
      'post /users/:service_id/preference-link',
      () => `/users/${scene.user}/preference-link`,
      editors,
      400,
      404,
    ],
    ['get /users/:service_id/export', () => `/users/${scene.user}/export`, [...all, 'exports'], 200, 404],
    ['get /users/:service_id/delete', () => `/users/${scene.user}/delete`, editors, 200, 404],
    ['post /users/:service_id/delete', () => `/users/${scene.user}/delete`, editors, 400, 404],
    ['get /requests', () => '/requests', delivery, 200, 200],
    ['get /requests/:id', async () => `/requests/${await requestOf(scene.shop)}`, delivery, 200, 404],
    ['get /dead-letters', () => '/dead-letters', delivery, 200, 200],
    ['post /dead-letters', () => '/dead-letters', [...all, 'mends'], 400, 403],
    [
      'get /dead-letters/:id',
      async () => `/dead-letters/${await scene.letterIn(scene.shop)}`,
      delivery,
      200,
      404,
    ],
    [
      'post /dead-letters/:id',
      async () => `/dead-letters/${await scene.letterIn(scene.shop)}`,
      [...all, 'mends'],
      400,
      404,
    ],
    ['get /refused-objects', () => '/refused-objects', delivery, 200, 200],
    ['get /refused-objects/cause', async () => (await scene.refusedIn(scene.shop)).path, delivery, 200, 404],
    ['get /syncs', () => '/syncs', syncs, 200, 200],
    ['get /imports', () => '/imports', syncs, 200, 200],
    ['get /imports/:id', () => `/imports/${begun}`, syncs, 200, 404],
    ['post /imports/:id', () => `/imports/${begun}`, ['operator'], 400, 404],
    ['post /syncs', () => '/syncs', syncs, 400, 400],
    ['get /syncs/:id', () => `/syncs/${scene.integration}`, syncs, 200, 404],
    ['post /syncs/:id', () => `/syncs/${scene.integration}`, syncs, 400, 404],
    ['get /syncs/:id/runs/:run', () => `/syncs/${scene.integration}/runs/${scene.run}`, syncs, 200, 404],
    [
      'get /syncs/:id/runs/:run/rows.csv',
      () => `/syncs/${scene.integration}/runs/${scene.run}/rows.csv`,
      [...streamMakers, 'streams with addresses'],
      200,
      404,
    ],
    ['get /streams', () => '/streams', syncs, 200, 200],
    ['post /streams', () => '/streams', streamMakers, 400, 400],
    ['get /streams/:id', () => `/streams/${scene.stream}`, syncs, 200, 404],
    ['post /streams/:id', () => `/streams/${scene.stream}`, syncs, 400, 404],
    ['get /groups', () => '/groups', groups, 200, 200],
    ['get /groups', () => '/groups?workspace=shop&user=user-1', all, 200, 404],
    ['post /groups', () => '/groups', groups, 400, 400],
    ['get /groups/:id', () => `/groups/${scene.group}`, groups, 200, 404],
    ['post /groups/:id', () => `/groups/${scene.group}`, groups, 400, 404],
    ['get /segments', () => '/segments', segments, 200, 200],
    ['post /segments', () => '/segments', segments, 400, 400],
    ['get /segments/:id', () => `/segments/${scene.segment}`, segments, 200, 404],
    ['get /segments/:id/users.csv', () => `/segments/${scene.segment}/users.csv`, all, 200, 404],
    ['post /segments/:id', () => `/segments/${scene.segment}`, segments, 400, 404],
    ['get /exports', () => '/exports', segments, 200, 200],
    ['post /exports', () => '/exports', all, 400, 400],
    ['get /blocked-ids', () => '/blocked-ids', pii, 200, 200],
    ['post /blocked-ids', () => '/blocked-ids', piiEditors, 400, 400],
    ['post /blocked-ids/:id', () => `/blocked-ids/${blocked}?workspace=${scene.shop}`, pii, 404, 404],
    ['get /preference-centers', () => '/preference-centers', centers, 200, 200],
    ['get /preference-centers/:id', () => `/preference-centers/${scene.center}`, centers, 200, 404],
    ['get /preference-centers/:id', () => `/preference-centers/${scene.center}?user=user-1`, all, 200, 404],
    ['post /preference-centers', () => '/preference-centers', centerEditors, 400, 400],
    ['post /preference-centers/:id', () => `/preference-centers/${scene.center}`, centerEditors, 400, 404],
    [
      'get /preference-centers/:id/preview',
      () => `/preference-centers/${scene.center}/preview`,
      centers,
      200,
      404,
    ],
    [
      'get /preference-centers/:id/preview',
      () => `/preference-centers/${scene.center}/preview?user=user-1`,
      all,
      200,
      404,
    ],
    ['get /workspaces', () => '/workspaces', usage, 200, 200],
    ['get /workspaces/:id', () => `/workspaces/${scene.shop}`, usage, 200, 404],
    ['post /workspaces', () => '/workspaces', ['operator'], 400, 403],
    ['post /workspaces/:id', () => `/workspaces/${scene.shop}`, all, 400, 404],
    ['get /limits', () => '/limits', usage, 200, 200],
    ['post /limits', () => '/limits', ['operator'], 400, 400],
    ['get /limits/:id', () => `/limits/users.track?workspace=${scene.shop}`, usage, 200, 404],
    ['post /limits/:id', () => '/limits/users.track', ['operator'], 400, 404],
    ['get /keys', () => '/keys', keys, 200, 200],
    ['post /keys', () => '/keys', keyMakers, 400, 400],
    ['get /keys/:id', () => `/keys/${scene.key}`, keys, 200, 404],
    ['post /keys/:id', () => `/keys/${scene.key}`, keyMakers, 400, 404],
    ['get /accounts', () => '/accounts', company, 200, 403],
    ['post /accounts', () => '/accounts', company, 400, 403],
    ['get /accounts/:id', () => `/accounts/${account}`, ours, 200, 404],
    ['post /accounts/:id', () => `/accounts/${account}`, ours, 400, 404],
    ['get /teams', () => '/teams', company, 200, 403],
    ['post /teams', () => '/teams', company, 400, 403],
    ['get /teams/:id', () => `/teams/${team}`, ours, 200, 404],
    ['post /teams/:id', () => `/teams/${team}`, ours, 400, 404],
    ['get /permission-sets', () => '/permission-sets', company, 200, 403],
    ['post /permission-sets', () => '/permission-sets', company, 400, 403],
    ['get /permission-sets/:id', () => `/permission-sets/${set}`, ours, 200, 404],
    ['post /permission-sets/:id', () => `/permission-sets/${set}`, ours, 400, 404],
    ['get /scim-tokens', () => '/scim-tokens', company, 200, 403],
    ['post /scim-tokens', () => '/scim-tokens', company, 400, 403],
    ['get /scim-tokens/:id', () => `/scim-tokens/${token}`, ours, 200, 404],
    ['post /scim-tokens/:id', () => `/scim-tokens/${token}`, ours, 400, 404],
    ['get /companies', () => '/companies', ['operator'], 200, 403],
    ['post /companies', () => '/companies', ['operator'], 400, 403],
    ['get /companies/:id', () => `/companies/${DEFAULT_COMPANY}`, ['operator'], 200, 403],
    ['get /audit', () => '/audit', company, 200, 403],
    ['get /audit.csv', () => '/audit.csv', company, 200, 403],
    ['get /sessions', () => '/sessions', anyone, 200, 200],
    ['post /sessions', () => '/sessions', anyone, 400, 400],
  ];

  /** Id of an account in the default company. */
  let account = '';
  let blocked = '';
  const [team, set, token, begun] = [uuidv7(), uuidv7(), uuidv7(), uuidv7()];
  const arrived = new Map<string, Visitor>();
  beforeAll(async () => {
    account = (await scene.people.arrive()).id;
    // An id that is not blocked: the first viewer would unblock another one.
    blocked = `${scene.shop}.${Buffer.from('not-blocked').toString('base64url')}`;
    await scene.query(
      "insert into blocked_external_ids (workspace_id, external_id, reason) values ($1, 'undefined', 'a bug')",
      scene.shop,
    );
    await scene.query(
      "insert into teams (id, workspace_id, name) values ($1, $2, 'Berlin')",
      team,
      scene.shop,
    );
    await scene.query(
      "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, 'Analysts', '{view_segments}')",
      ...[set, DEFAULT_COMPANY],
    );
    await scene.query(
      `insert into scim_tokens (id, company_id, name, identifier, token_hash, origin, ip_allowlist)
       values ($1, $2, 'Directory', 'st_12345', '\\x00', 'https://idp.example', '{}')`,
      ...[token, DEFAULT_COMPANY],
    );
    await scene.query(
      `insert into imports (workspace_id, key, id, file, digest, reading)
       values ($1, '\\x01', $2, 'users.csv', '\\x02', '{}')`,
      ...[scene.shop, begun],
    );
    for (const [name, arrive] of Object.entries(roles)) arrived.set(name, await arrive());
  });

  const requestOf = async (workspaceId: string) => {
    const requestId = uuidv7();
    await scene.letterIn(workspaceId, { requestId });
    return requestId;
  };

  test('every route of the console is in the table', () => {
    expect([...new Set(routes.map(([route]) => route))].sort()).toEqual(
      pages.map(({ method, path }) => `${method} ${path}`).sort(),
    );
  });

  test.each(routes)('%s', async (...given) => {
    const [route, pathOf, passes, status, other] = given;
    const path = await pathOf();
    const results: Record<string, number> = {};
    for (const [name, visitor] of arrived) {
      const answer = route.startsWith('get')
        ? visitor.get(path, html)
        : post(visitor, path, { workspace: scene.shop });
      results[name] = (await answer).status;
    }
    // Routes of a company's resources do not exist for a user who administers only another workspace.
    const isOfCompany = /\/(?:accounts|teams|permission-sets|scim-tokens)\//.test(route);
    const isOutside = (name: string) =>
      elsewhere.includes(name) && !(isOfCompany && name === 'another workspace');
    const expected = Object.fromEntries(
      anyone.map((name) => [name, passes.includes(name) ? status : isOutside(name) ? other : 403]),
    );
    // Roles without the right get 403.
    expect(results).toEqual(expected);
  });

  test('an external id is unblocked only by viewers who may change users', async () => {
    const path = `/blocked-ids/${scene.shop}.${Buffer.from('undefined').toString('base64url')}`;
    const statusFor = async (role: string) =>
      (await post(arrived.get(role)!, path, { workspace: scene.shop })).status;
    expect([await statusFor('only pii'), await statusFor('operator')]).toEqual([403, 303]);
  });

  test('without a session each page redirects to the sign-in form, and each action is rejected', async () => {
    const stranger = createVisitor({ url: scene.board.url });
    for (const [route, pathOf] of routes) {
      const path = await pathOf();
      const answer = route.startsWith('get')
        ? await stranger.get(path, html)
        : await stranger.send('POST', path, { headers: { accept: 'application/json' } });
      expect([route, answer.status]).toEqual([route, route.startsWith('get') ? 303 : 401]);
    }
  });

  test('an action sent by another site is rejected, even with a session', async () => {
    for (const [route, pathOf] of routes.filter(([route]) => route.startsWith('post'))) {
      const path = await pathOf();
      for (const headers of [
        { origin: 'https://elsewhere.example' },
        { 'sec-fetch-site': 'cross-site' },
        { 'sec-fetch-site': 'same-site' },
        { origin: 'null' },
      ]) {
        const answer = await scene.operator.send('POST', path, { body: 'action=replay', headers });
        expect([route, headers, answer.status]).toEqual([route, headers, 403]);
      }
    }
  });

  test('the navigation contains exactly the pages that the viewer may open', async () => {
    const namesFor = async (role: string) => {
      const { text } = await page(arrived.get(role)!, '/');
      return [...text.matchAll(/<li><a href="([^"]+)"/g)].map(([, path]) => path);
    };
    expect(await namesFor('operator')).toEqual([
      ...['/users', '/segments', '/preference-centers', '/groups', '/exports', '/blocked-ids'],
      ...['/dead-letters', '/requests', '/refused-objects', '/syncs', '/imports', '/streams'],
      ...['/', '/queues', '/audit', '/companies', '/workspaces', '/limits', '/keys', '/accounts'],
    ]);
    expect(await namesFor('nothing')).toEqual(['/', '/queues']);
    expect(await namesFor('views users')).toEqual(['/users', '/', '/queues']);
    expect(await namesFor('developer')).toEqual([
      ...['/dead-letters', '/requests', '/refused-objects', '/', '/queues'],
    ]);
  });
});
