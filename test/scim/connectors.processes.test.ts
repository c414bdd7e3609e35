import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { ORIGIN } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import { createScene, ERROR, type Provider, refusal, type Scene, USER } from './scene.ts';

const ENTERPRISE = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User';
const LIST = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
});
afterAll(() => scene.stop());

/** Attributes that this protocol requires in addition to the usual ones; an administrator maps them. */
const mapped = {
  department: 'engineering',
  permissions: { appGroup: [{ appGroupName: 'shop', appGroupPermissions: ['basic_access'] }] },
};

describe("the requests of Okta's specification test for SCIM 2.0", () => {
  const headers = {
    'accept-charset': 'utf-8',
    'content-type': 'application/scim+json; charset=utf-8',
    accept: 'application/scim+json',
    'user-agent': 'OKTA SCIM Integration',
  };
  const request = (path: string) => provider.call('GET', path, undefined, headers);
  const userName = 'Runscope.300.abc@atko.com';
  const given = {
    schemas: [USER],
    userName,
    name: { givenName: 'Runscope300', familyName: 'Abc' },
    emails: [{ primary: true, value: 'runscope300abc@mail.atko.com', type: 'work' }],
    displayName: 'Runscope300 Abc',
    active: true,
  };
  const asJson = { 'content-type': 'application/json', accept: 'application/scim+json; charset=utf-8' };

  test('succeed in order: list, read, search, create, create again, search in another case', async () => {
    await provider.create();
    const { status, body } = await request('/Users?count=1&startIndex=1');
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        schemas: [LIST],
        itemsPerPage: 1,
        startIndex: 1,
        totalResults: expect.any(Number),
        Resources: [
          {
            id: expect.stringMatching(/./),
            name: { familyName: expect.stringMatching(/./), givenName: expect.stringMatching(/./) },
            userName: expect.stringMatching(/./),
            active: true,
            emails: [{ value: expect.stringMatching(/./) }],
          },
        ],
      },
    });
    const [first] = body.Resources;
    expect(await request(`/Users/${first.id}`)).toMatchObject({ status: 200, body: first });
    for (const nobody of ['abcdefgh@atko.com', userName])
      expect(await request(`/Users?filter=userName%20eq%20%22${nobody}%22`)).toMatchObject({
        status: 200,
        body: { schemas: [LIST], totalResults: 0 },
      });
    expect(await request('/Users/010101001010101011001010101011')).toMatchObject(
      refusal(404, expect.stringMatching(/./)),
    );

    const created = await provider.call('POST', '/Users', { ...given, ...mapped }, asJson);
    expect(created).toMatchObject({
      status: 201,
      body: { schemas: [USER], userName, active: true, name: given.name, emails: given.emails },
    });
    expect(await request(`/Users/${created.body.id}`)).toMatchObject({
      status: 200,
      body: { userName, name: given.name },
    });
    expect(await provider.call('POST', '/Users', { ...given, ...mapped }, asJson)).toMatchObject({
      status: 409,
    });
    expect(await request(`/Users?filter=userName%20eq%20%22${userName.toUpperCase()}%22`)).toMatchObject({
      status: 200,
      body: { totalResults: 1 },
    });
    expect(await request('/Users/00919288221112222')).toMatchObject(refusal(404, expect.stringMatching(/./)));
    const stranger = await send(scene.port, {
      method: 'GET',
      path: '/scim/v2/Users',
      headers: { ...headers, 'x-request-origin': ORIGIN, authorization: 'non-token' },
    });
    expect(stranger).toMatchObject({
      status: 401,
      body: { schemas: [ERROR], detail: 'Unauthorized', status: 401 },
    });
  });

  test('a create that lacks several members gets one 400 that names all of them', async () => {
    const missing = "'department' and 'permissions' are required";
    const answer = await provider.call('POST', '/Users', given, asJson);
    expect(answer).toMatchObject(refusal(400, missing, 'invalidValue'));
    const half = { ...given, name: {}, permissions: {} };
    expect(await provider.call('POST', '/Users', half, asJson)).toMatchObject(
      refusal(
        400,
        "'department', 'name.givenName', 'name.familyName' and 'permissions.appGroup' are required",
        'invalidValue',
      ),
    );
  });

  test('an update by PUT and a deactivation by a PATCH without a path', async () => {
    const { body: created } = await provider.call(
      'POST',
      '/Users',
      { ...given, ...mapped, userName: 'put@atko.com', externalId: '00u1' },
      asJson,
    );
    const emails = [{ primary: true, value: 'other@atko.com', type: 'work' }];
    const put = await provider.call(
      'PUT',
      `/Users/${created.id}`,
      { ...created, emails, groups: [] },
      asJson,
    );
    expect(put).toMatchObject({ status: 200, body: { externalId: '00u1', emails } });
    const patched = await provider.patch(created.id, [{ op: 'replace', value: { active: false } }], asJson);
    expect(patched).toMatchObject({ status: 200, body: { active: false, emails } });
  });
});

describe("the requests of Microsoft Entra's provisioning and its validator", () => {
  let made = 0;
  const person = () => {
    const name = `entra-${++made}`;
    return {
      schemas: [USER, ENTERPRISE],
      externalId: `${name}-id`,
      userName: `${name}@contoso.com`,
      active: true,
      displayName: 'MOD Administrator',
      emails: [{ primary: true, type: 'work', value: `${name}@mail.contoso.com` }],
      meta: { resourceType: 'User' },
      name: { formatted: 'givenName familyName', familyName: 'familyName', givenName: 'givenName' },
      roles: [],
      title: 'Manager',
      preferredLanguage: 'sr-Latn-RS',
      phoneNumbers: [{ type: 'work', value: '18-569-6230', primary: true }],
      addresses: [{ type: 'work', locality: 'Berlin', primary: true }],
      [ENTERPRISE]: { employeeNumber: '7', department: 'Elsewhere', manager: { value: 'x' } },
      ...mapped,
    };
  };
  const create = async () => {
    const given = person();
    const answer = await provider.call('POST', '/Users', given);
    expect(answer).toMatchObject({
      status: 201,
      body: { emails: given.emails, externalId: given.externalId },
    });
    expect(answer.body).not.toHaveProperty('title');
    return { given, id: answer.body.id as string };
  };
  const list = async (filter: string) => {
    const { status, body } = await provider.call('GET', `/Users?${new URLSearchParams({ filter })}`);
    expect({ filter, status }).toEqual({ filter, status: 200 });
    return body.Resources.map((one: { id: string }) => one.id);
  };

  test("a user is created, and found by the provider's identifiers, active or not", async () => {
    const { given, id } = await create();
    const filters = [
      `userName eq "${given.userName}"`,
      `userName eq ${given.userName}`,
      `externalId eq "${given.externalId}"`,
      `externalId eq ${given.externalId}`,
      `emails[type eq "work"].value eq "${given.emails[0]!.value}"`,
      `emails[type eq "work"].value eq ${given.emails[0]!.value}`,
    ];
    for (const filter of filters) expect(await list(filter)).toEqual([id]);
    await provider.patch(id, [{ op: 'Replace', path: 'active', value: 'False' }]);
    for (const filter of filters) expect(await list(filter)).toEqual([id]);
    const query = `/Users?filter=${encodeURIComponent(filters[0]!)}&excludedAttributes=members`;
    expect((await provider.call('GET', query)).body.Resources).toMatchObject([{ id, active: false }]);
  });

  test('a PATCH of many attributes changes the stored ones and ignores the others', async () => {
    const { id } = await create();
    const operations: Json[] = [
      { op: 'Replace', path: 'emails[type eq "work"].value', value: 'new@mail.contoso.com' },
      { op: 'Replace', path: 'emails[type eq "work"].primary', value: 'True' },
      { op: 'Add', path: 'emails[type eq "other"].value', value: 'other@mail.contoso.com' },
      { op: 'Replace', path: 'name.familyName', value: 'Family' },
      { op: 'Replace', path: 'displayName', value: 'x' },
      { op: 'Replace', path: 'title', value: 'x' },
      { op: 'Add', path: 'phoneNumbers[type eq "mobile"].value', value: '33-749-9990' },
      { op: 'Replace', path: 'addresses[type eq "work"].locality', value: 'Rome' },
      { op: 'Replace', path: 'roles[primary eq "True"].value', value: 'x' },
      { op: 'Add', path: `${ENTERPRISE}:department`, value: 'Elsewhere' },
      { op: 'Add', path: `${ENTERPRISE}:manager`, value: { value: 'x' } },
      { op: 'Remove', path: 'name.formatted' },
      { op: 'Replace', path: 'password', value: 'x' },
      { op: 'Add', path: 'urn:example:params:scim:schemas:extension:shop:2.0:User:badge', value: 'x' },
      {
        op: 'replace',
        value: {
          'name.givenName': 'Given',
          'name.middleName': 'x',
          nickName: 'x',
          password: 'x',
          'urn:example:params:scim:schemas:extension:shop:2.0:User': { badge: 'x' },
          externalId: 'other-id',
          [`${ENTERPRISE}:costCenter`]: 'x',
          [ENTERPRISE]: { division: 'x' },
        },
      },
      { op: 'Replace', path: 'active', value: 'False' },
    ];
    const { status, body } = await provider.patch(id, operations);
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        active: false,
        name: { givenName: 'Given', familyName: 'Family' },
        externalId: 'other-id',
        displayName: 'x',
        department: 'engineering',
        emails: [
          { value: 'new@mail.contoso.com', type: 'work', primary: true },
          { value: 'other@mail.contoso.com', type: 'other' },
        ],
      },
    });
    expect((await provider.call('GET', `/Users/${id}`)).body).toEqual(body);
    // Type and address in one condition apply to the same address.
    const work = (address: string) => `emails[type eq "work"].value eq "${address}@mail.contoso.com"`;
    expect([await list(work('new')), await list(work('other'))]).toEqual([[id], []]);
    expect((await provider.patch(id, [{ op: 'Replace', path: 'active', value: 'True' }])).body.active).toBe(
      true,
    );
    expect((await provider.call('DELETE', `/Users/${id}`)).status).toBe(204);
  });

  test('a PATCH value without a path may name values of a list by a filter', async () => {
    const { id } = await create();
    const value = { 'emails[type eq "work"].value': 'new@mail.contoso.com', displayName: 'New Name' };
    const patched = await provider.patch(id, [{ op: 'replace', value }]);
    expect(patched).toMatchObject({
      status: 200,
      body: { displayName: 'New Name', emails: [{ type: 'work', value: 'new@mail.contoso.com' }] },
    });
    const unmatched = { 'emails[type eq "home"].value': 'x@contoso.com' };
    expect(await provider.patch(id, [{ op: 'replace', value: unmatched }])).toMatchObject({
      status: 400,
      body: { scimType: 'noTarget' },
    });
  });

  test('a guest of Entra is created, found and changed by a userName with #EXT#', async () => {
    const userName = 'guest_example.com#EXT#@contoso.onmicrosoft.com';
    const created = await provider.call('POST', '/Users', { ...person(), userName });
    expect(created).toMatchObject({ status: 201, body: { userName } });
    for (const filter of [`userName eq "${userName}"`, `userName eq ${userName.toLowerCase()}`])
      expect(await list(filter)).toEqual([created.body.id]);
    const operations: Json[] = [
      { op: 'Replace', path: 'userName', value: userName },
      { op: 'Replace', path: 'active', value: 'False' },
    ];
    expect(await provider.patch(created.body.id, operations)).toMatchObject({
      status: 200,
      body: { active: false },
    });
  });

  test('displayName is stored, returned, found by a filter, and removed by a PUT without it', async () => {
    const { given, id } = await create();
    await provider.patch(id, [{ op: 'Replace', path: 'displayName', value: 'Adèle Vance' }]);
    expect((await provider.call('GET', `/Users/${id}`)).body).toMatchObject({ displayName: 'Adèle Vance' });
    expect(await list('displayName eq "adèle vance"')).toEqual([id]);
    expect(await list('displayName sw "Adèle"')).toEqual([id]);
    const { displayName: _, ...rest } = given;
    const put = await provider.call('PUT', `/Users/${id}`, rest);
    expect(put.status).toBe(200);
    expect(put.body).not.toHaveProperty('displayName');
  });

  test('a boolean may be sent as text, in a body as in a PATCH', async () => {
    const [address] = person().emails;
    for (const [text, truth] of [
      ['True', true],
      ['False', false],
    ] as const) {
      const given = { ...person(), active: text, emails: [{ ...address!, primary: text }] };
      const whole = { active: truth, emails: [{ primary: truth }] };
      const created = await provider.call('POST', '/Users', given);
      expect(created).toMatchObject({ status: 201, body: whole });
      const turned = { ...given, active: truth ? 'False' : 'True' };
      const put = await provider.call('PUT', `/Users/${created.body.id}`, turned);
      expect(put).toMatchObject({ status: 200, body: { ...whole, active: !truth } });
    }
  });

  test('a user without an address gets one by the type in the path, and loses it again', async () => {
    const { id } = await provider.create();
    const path = 'emails[type eq "home"]';
    const added = await provider.patch(id, [{ op: 'Add', path: `${path}.value`, value: 'a@home.example' }]);
    expect(added.body.emails).toMatchObject([{ type: 'work' }, { type: 'home', value: 'a@home.example' }]);
    const removed = await provider.patch(id, [{ op: 'Remove', path }]);
    expect(removed.body.emails).toMatchObject([{ type: 'work' }]);
    const none = await provider.patch(id, [{ op: 'Remove', path: 'emails' }]);
    expect(none.body).not.toHaveProperty('emails');
    // RFC 7644 §3.5.2.3: an attribute that does not exist cannot be replaced.
    expect(await provider.patch(id, [{ op: 'Replace', path: `${path}.value`, value: 'x' }])).toMatchObject({
      status: 400,
      body: { scimType: 'noTarget' },
    });
  });

  test('another user name is rejected, as the protocol requires; the current one may be sent', async () => {
    const { given, id } = await create();
    const patch = (value: string) => provider.patch(id, [{ op: 'Replace', path: 'userName', value }]);
    expect(await patch(given.userName)).toMatchObject({ status: 200 });
    expect(await patch('other@contoso.com')).toMatchObject(
      refusal(400, "'userName' cannot be changed", 'mutability'),
    );
  });

  test('groups are not supported: /Groups is 404, members of a user are 400', async () => {
    expect(await provider.call('GET', '/Groups?excludedAttributes=members')).toMatchObject({ status: 404 });
    const { id } = await create();
    expect(await provider.patch(id, [{ op: 'Add', path: 'members', value: [{ value: 'x' }] }])).toMatchObject(
      {
        status: 400,
        body: { scimType: 'invalidPath' },
      },
    );
  });

  test.each<[string, Json, string]>([
    ['no list', { value: 'a@x.com' }, "'emails' is not valid: it must be an array of at most 20 objects"],
    ['no object', ['a@x.com'], "'emails.0' is not valid: it must be an object"],
    ['an empty address', [{ value: '' }], "'emails.0.value' is not valid"],
    [
      'a primary that is not a boolean',
      [{ primary: 'x' }],
      "'emails.0.primary' is not valid: it must be true or false",
    ],
  ])('invalid addresses are 400: %s', async (_, emails, detail) => {
    const answer = await provider.call('POST', '/Users', { ...person(), emails });
    expect(answer).toMatchObject(refusal(400, expect.stringContaining(detail), 'invalidValue'));
  });
});
