import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { departments } from '../../src/schemas/permissions.ts';
import { accountOf, createScene, type Provider, refusal, type Scene, USER } from './scene.ts';

const NOBODY = '019c13ec-a2e2-7b61-8f0c-000000000000';

let scene: Scene;
let provider: Provider;
let teamId: string;
let setId: string;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
  const insert = async (text: string, values: unknown[]) =>
    (await scene.pool.query(`${text} returning id`, values)).rows[0].id;
  teamId = await insert('insert into teams (id, workspace_id, name) values (gen_random_uuid(), $1, $2)', [
    provider.workspace.id,
    'Berlin',
  ]);
  setId = await insert(
    'insert into permission_sets (id, company_id, name, permissions) values (gen_random_uuid(), $1, $2, $3)',
    [provider.companyId, 'Analyst', ['basic_access']],
  );
});
afterAll(() => scene.stop());

/** Returns permissions in one workspace. */
const inGroup = (group: Record<string, Json>) => ({ permissions: { appGroup: [group] } });

describe('POST /scim/v2/Users', () => {
  test('RFC 7644 §3.3: 201 with the whole account, Location, ETag, in application/scim+json', async () => {
    const given = accountOf('shop', { userName: 'Grace.Hopper@Example.com', externalId: 'hr-7' });
    const { status, headers, body } = await provider.call('POST', '/Users', given);
    expect(status).toBe(201);
    const location = `http://127.0.0.1:${scene.port}/scim/v2/Users/${body.id}`;
    expect(body).toEqual({
      schemas: [USER],
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      externalId: 'hr-7',
      userName: 'Grace.Hopper@Example.com',
      name: { givenName: 'Ada', familyName: 'Lovelace' },
      emails: [{ value: 'Grace.Hopper@Example.com', type: 'work', primary: true }],
      department: 'engineering',
      active: true,
      lastSignInAt: 'N/A',
      permissions: {
        companyPermissions: ['manage_company_settings'],
        appGroup: [
          {
            appGroupId: provider.workspace.id,
            appGroupName: 'shop',
            appGroupPermissions: ['basic_access'],
            team: [],
          },
        ],
      },
      meta: {
        resourceType: 'User',
        created: expect.stringMatching(/^\d{4}-.*Z$/),
        lastModified: body.meta.created,
        location,
        version: 'W/"1"',
      },
    });
    expect(headers.get('content-type')).toBe('application/scim+json');
    expect(headers.get('location')).toBe(location);
    expect(headers.get('etag')).toBe('W/"1"');
  });

  test('an email address of a private network is accepted', async () => {
    const { userName } = await provider.create({ userName: 'Ada@corp.internal' });
    expect(userName).toBe('Ada@corp.internal');
    const { status } = await provider.call(
      'POST',
      '/Users',
      accountOf('shop', { userName: 'ada@CORP.internal' }),
    );
    expect(status).toBe(409);
  });

  test('RFC 7644 §3.8: a media type other than JSON gets 415 with the supported types', async () => {
    const type = { 'content-type': 'application/xml' };
    expect(await provider.call('POST', '/Users', accountOf('shop'), type)).toMatchObject(
      refusal(
        415,
        "Unsupported Media Type: Content-Type is 'application/xml'. Supported: application/json, application/scim+json",
      ),
    );
  });

  test('RFC 7644 §3.1: application/json is accepted as well', async () => {
    const type = { 'content-type': 'application/json' };
    expect((await provider.call('POST', '/Users', accountOf('shop'), type)).status).toBe(201);
  });

  test('RFC 7644 §3.3: an email address in use is 409, in any case of its letters', async () => {
    await provider.create({ userName: 'taken@example.com' });
    for (const userName of ['taken@example.com', 'TAKEN@Example.COM']) {
      expect(await provider.call('POST', '/Users', accountOf('shop', { userName }))).toMatchObject(
        refusal(409, 'User already exists in the database.', 'uniqueness'),
      );
    }
  });

  test('one of two simultaneous creates of an email address is 201, the other 409', async () => {
    for (let round = 0; round < 20; round++) {
      const given = accountOf('shop');
      const answers = await Promise.all([1, 2].map(() => provider.call('POST', '/Users', given)));
      expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    }
  });

  test.each(['schemas', 'userName', 'name', 'department', 'permissions'])(
    '%s is required',
    async (member) => {
      const { [member]: _, ...rest } = accountOf('shop');
      expect(await provider.call('POST', '/Users', rest)).toMatchObject(
        refusal(400, `'${member}' is required`, 'invalidValue'),
      );
    },
  );

  test.each<[string, Record<string, Json>, string]>([
    ['no SCIM user', { schemas: ['urn:other'] }, 'schemas'],
    [
      'a user name that is not an email address',
      { userName: 'ada' },
      "'userName' is not valid: it must be an email",
    ],
    ['a name of one part', { name: { givenName: 'Ada' } }, "'name.familyName' is required"],
    ['an empty name', { name: { givenName: '', familyName: 'L' } }, "'name.givenName' is not valid"],
    ['a NUL', { name: { givenName: 'A\u0000', familyName: 'L' } }, "'name.givenName' is not valid"],
    [
      'an active that is not a boolean',
      { active: 'maybe' },
      "'active' is not valid: it must be true or false",
    ],
    ['permissions without workspaces', { permissions: {} }, "'permissions.appGroup' is required"],
  ])('RFC 7644 §3.12: %s is 400, with the field and its rule', async (_, change, detail) => {
    const answer = await provider.call('POST', '/Users', accountOf('shop', change));
    expect(answer).toMatchObject(refusal(400, expect.stringContaining(detail), 'invalidValue'));
  });

  test('every department of the list is accepted; another is 400 and named', async () => {
    for (const department of departments)
      expect((await provider.create({ department })).department).toBe(department);
    const answer = await provider.call('POST', '/Users', accountOf('shop', { department: 'sales' }));
    expect(answer).toMatchObject(
      refusal(
        400,
        `'department' is not valid: there is no department 'sales'; there are ${departments.join(', ')}`,
      ),
    );
  });

  test.each<[string, Record<string, Json>, string]>([
    [
      'a company permission',
      { permissions: { companyPermissions: ['admin', 'fly'], appGroup: [] } },
      "'permissions.companyPermissions' is not valid: there is no company permission 'fly'",
    ],
    [
      'workspace permissions',
      inGroup({ appGroupName: 'shop', appGroupPermissions: ['fly', 'admin', 'swim'] }),
      "'permissions.appGroup.0.appGroupPermissions' is not valid: there is no workspace permission 'fly', 'swim'",
    ],
    [
      'a team permission',
      inGroup({ appGroupName: 'shop', team: [{ teamName: 'Berlin', teamPermissions: ['view_pii'] }] }),
      "'permissions.appGroup.0.team.0.teamPermissions' is not valid: there is no team permission 'view_pii'",
    ],
    [
      'a workspace',
      inGroup({ appGroupName: 'moon', appGroupPermissions: ['admin'] }),
      "'permissions.appGroup.0' is not valid: no workspace has the name 'moon'",
    ],
    [
      'the id of a workspace',
      inGroup({ appGroupId: NOBODY }),
      `'permissions.appGroup.0' is not valid: no workspace has the id '${NOBODY}'`,
    ],
    [
      'a team',
      inGroup({ appGroupName: 'shop', team: [{ teamName: 'Rome', teamPermissions: ['admin'] }] }),
      "'permissions.appGroup.0.team.0' is not valid: no team has the name 'Rome'",
    ],
    [
      'a permission set',
      inGroup({ appGroupName: 'shop', appGroupPermissionSets: [{ appGroupPermissionSetName: 'Boss' }] }),
      "'permissions.appGroup.0.appGroupPermissionSets.0' is not valid: no permission set has the name 'Boss'",
    ],
  ])('an unknown %s is 400 and named', async (_, change, detail) => {
    const answer = await provider.call('POST', '/Users', accountOf('shop', change));
    expect(answer).toMatchObject(refusal(400, expect.stringContaining(detail), 'invalidValue'));
  });

  test.each<[string, Record<string, Json>, string]>([
    [
      'a permission next to a permission set',
      {
        appGroupName: 'shop',
        appGroupPermissions: ['admin'],
        appGroupPermissionSets: [{ appGroupPermissionSetName: 'Analyst' }],
      },
      'not both',
    ],
    [
      'a workspace without name and id',
      { appGroupPermissions: ['admin'] },
      'it needs appGroupName or appGroupId',
    ],
  ])('%s is 400', async (_, group, detail) => {
    const answer = await provider.call('POST', '/Users', accountOf('shop', inGroup(group)));
    expect(answer).toMatchObject(refusal(400, expect.stringContaining(detail)));
  });

  test('a workspace that is named twice is 400', async () => {
    const appGroup = [{ appGroupName: 'shop' }, { appGroupId: provider.workspace.id }];
    const answer = await provider.call('POST', '/Users', accountOf('shop', { permissions: { appGroup } }));
    expect(answer).toMatchObject(
      refusal(400, expect.stringContaining("the workspace 'shop' is named twice")),
    );
  });

  test('workspaces, teams and permission sets are sent by name or id, and returned with both', async () => {
    const workspaceId = provider.workspace.id;
    const team = { teamId, teamName: 'Berlin', teamPermissions: ['basic_access'] };
    const set = { appGroupPermissionSetId: setId, appGroupPermissionSetName: 'Analyst' };
    const answered = {
      appGroupId: workspaceId,
      appGroupName: 'shop',
      appGroupPermissionSets: [set],
      team: [team],
    };
    for (const group of [
      {
        appGroupName: 'shop',
        appGroupPermissionSets: [{ appGroupPermissionSetName: 'Analyst' }],
        team: [{ teamName: 'Berlin', teamPermissions: ['basic_access'] }],
      },
      {
        appGroupId: workspaceId.toUpperCase(),
        appGroupPermissionSets: [{ appGroupPermissionSetId: setId }],
        team: [{ teamId, teamPermissions: ['basic_access'] }],
      },
      answered,
    ]) {
      const { permissions } = await provider.create(inGroup(group));
      expect(permissions).toEqual({ companyPermissions: [], appGroup: [answered] });
    }
  });
});

test("another company's workspaces, teams and permission sets are unknown, by name and by id", async () => {
  const other = await scene.createProvider('library');
  for (const group of [
    { appGroupName: 'shop' },
    { appGroupId: provider.workspace.id },
    { appGroupName: 'library', team: [{ teamId, teamPermissions: [] }] },
    { appGroupName: 'library', appGroupPermissionSets: [{ appGroupPermissionSetId: setId }] },
  ]) {
    const answer = await other.call('POST', '/Users', accountOf('library', inGroup(group as never)));
    expect(answer).toMatchObject(
      refusal(400, expect.stringMatching(/no (workspace|team|permission set) has the/)),
    );
  }
});
