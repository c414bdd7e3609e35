import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createScene, type Provider, type Scene } from './scene.ts';

interface Listed {
  id: string;
  userName: string;
}

let scene: Scene;
let provider: Provider;
const people = [
  ['ada@example.com', 'Ada', 'Lovelace', 'engineering'],
  ['ada.byron@example.com', 'Ada', 'Byron', 'finance'],
  ['grace@example.com', 'Grace', 'Hopper', 'engineering'],
  ['per_cent@example.com', 'Per%Cent', 'Under_score', 'pm'],
  ['percent@example.com', 'PerXCent', 'UnderXscore', 'pm'],
] as const;
const ids: string[] = [];
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
  for (const [userName, givenName, familyName, department] of people) {
    const { id } = await provider.create({ userName, name: { givenName, familyName }, department });
    ids.push(id);
  }
});
afterAll(() => scene.stop());

const list = (query: Record<string, string>) => provider.ask('GET', `/Users?${new URLSearchParams(query)}`);
const namesOf = (body: { Resources: Listed[] }) =>
  body.Resources.map(({ userName }) => userName.split('@')[0]);
const find = async (filter: string) => {
  const { status, body } = await list({ filter });
  expect(status).toBe(200);
  return namesOf(body);
};

describe('RFC 7644 §3.4.2.2: filters', () => {
  test('userName eq finds one by the email address, whatever its case, in the form of the specification', async () => {
    for (const [filter, key] of [
      ['userName eq "GRACE@example.COM"', 'GRACE'],
      ['USERNAME EQ "grace@example.com"', 'grace'],
      ['urn:ietf:params:scim:schemas:core:2.0:User:userName eq "grace@example.com"', 'urn'],
    ]) {
      const { status, body } = await list({ filter: filter! });
      expect({ key, status }).toEqual({ key, status: 200 });
      expect(body).toMatchObject({
        schemas: ['urn:ietf:params:scim:api:messages:2.0:ListResponse'],
        totalResults: 1,
        startIndex: 1,
        itemsPerPage: 1,
        Resources: [{ id: ids[2], userName: 'grace@example.com', department: 'engineering' }],
      });
      expect(body.Resources[0]).not.toHaveProperty('schemas');
    }
  });

  test('no match is 200 with none', async () => {
    expect((await list({ filter: 'userName eq "nobody@example.com"' })).body).toMatchObject({
      totalResults: 0,
      Resources: [],
    });
  });

  test.each([
    ['userName sw "ada"', ['ada', 'ada.byron']],
    ['userName co "RACE"', ['grace']],
    ['name.givenName eq "ada"', ['ada', 'ada.byron']],
    ['name.familyName sw "hop"', ['grace']],
    ['name co "ada b"', ['ada.byron']],
    ['name eq "Grace Hopper"', ['grace']],
    ['department eq "engineering"', ['ada', 'grace']],
    ['department sw "ENG"', ['ada', 'grace']],
    ['department co "nanc"', ['ada.byron']],
    ['name sw "grace h"', ['grace']],
    ['department eq "ENGINEERING" and name.givenName sw "G"', ['grace']],
    ['name.familyName eq "Hopper" or department eq "finance"', ['ada.byron', 'grace']],
    ['userName sw "ada" and (department eq "finance" or department eq "pm")', ['ada.byron']],
    [
      'department eq "pm" and userName co "per" or userName eq "grace@example.com"',
      ['grace', 'per_cent', 'percent'],
    ],
    ['active eq true and userName sw "grace"', ['grace']],
    ['active eq false', []],
    ['id eq "nobody"', []],
    ['externalId eq "x"', []],
  ])('%s', async (filter, found) => {
    expect(await find(filter)).toEqual(found);
  });

  test('id eq, id sw and id co find by the id', async () => {
    expect(await find(`id eq "${ids[2]}"`)).toEqual(['grace']);
    expect(await find(`id sw "${ids[2]!.slice(0, 30)}" and id eq "${ids[2]}"`)).toEqual(['grace']);
    expect(await find(`id co "${ids[2]!.slice(4)}"`)).toEqual(['grace']);
  });

  test('a wildcard of SQL stands for itself', async () => {
    expect(await find('userName sw "per_"')).toEqual(['per_cent']);
    expect(await find('name.givenName sw "Per%"')).toEqual(['per_cent']);
    expect(await find('name.familyName co "_"')).toEqual(['per_cent']);
    expect(await find('name.familyName sw "\\\\"')).toEqual([]);
  });

  test('a string is a JSON string, with its escapes', async () => {
    expect(await find('name.givenName eq "\\u0041d\\u0061"')).toEqual(['ada', 'ada.byron']);
    expect(await find('name.givenName eq "say \\"x\\" and (y"')).toEqual([]);
  });

  const nested = `${'('.repeat(500)}userName eq "a"${')'.repeat(500)}`;
  test.each([
    '',
    'grace@example.com',
    'userName eq grace@example.com',
    'userName eq "grace@example.com',
    'userName eq',
    'userName "a"',
    'userName eq "a" and',
    'userName eq "a" "b"',
    'userName eq "a")',
    'userName eq "\\x"',
    'userName eq "\\u0000"',
    'userName eq 7',
    'userName eq null',
    'userName ne "a"',
    'userName pr',
    'not (userName eq "a")',
    'userName gt "a"',
    'userName eq "a" constructor userName eq "b"',
    'password eq "a"',
    'passwordHash sw "scrypt"',
    '__proto__ eq "a"',
    'permissions.appGroup[appGroupName eq "shop"]',
    "userName eq 'a' or 1=1 --",
    Array(21).fill('userName eq "a"').join(' or '),
    nested,
    `userName eq "${'x'.repeat(2000)}"`,
  ])('what cannot be parsed or is not supported is 400 invalidFilter: %s', async (filter) => {
    const { status, body } = await list({ filter });
    expect(body).toMatchObject({ scimType: 'invalidFilter', status: 400 });
    expect(body.detail).toMatch(/^Request is unparsable, syntactically incorrect, or violates schema\./);
    expect(status).toBe(400);
  });

  test('a filter that is given twice is 400', async () => {
    expect((await provider.ask('GET', '/Users?filter=a&filter=b')).status).toBe(400);
  });

  test('every comparison but co is answered by an index', async () => {
    const plans = {
      // The index of the dashboard's sign-in serves an address as well.
      'accounts.email = $1': /accounts_(email|sign_in)/,
      "accounts.email like 'ada%'": /accounts_(email|sign_in)/,
      "lower(accounts.given_name) like 'ada%'": /accounts_given_name/,
      'lower(accounts.family_name) = $1': /accounts_family_name/,
      'accounts.external_id = $1': /accounts_external_id/,
    };
    const tx = await scene.pool.connect();
    try {
      await tx.query('begin');
      await tx.query(
        `insert into accounts (id, company_id, user_name, email, given_name, family_name, department, external_id)
         select gen_random_uuid(), $1, n || '@a', n || '@a', 'g' || n, 'f' || n, 'pm', n
         from generate_series(1, 20000) as n`,
        [provider.companyId],
      );
      await tx.query('analyze accounts');
      for (const [condition, index] of Object.entries(plans)) {
        const { rows } = await tx.query(
          `explain select 1 from accounts
           where company_id = '${provider.companyId}' and ${condition.replace('$1', "'ada'")}`,
        );
        const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
        expect(plan).toMatch(index);
      }
    } finally {
      await tx.query('rollback');
      tx.release();
    }
  });
});

describe('RFC 7644 §3.4.2.4: pages', () => {
  test('without a filter everyone comes, in the order in which they were made', async () => {
    const { body } = await list({});
    expect(body).toMatchObject({ totalResults: 5, startIndex: 1, itemsPerPage: 5 });
    expect(body.Resources.map(({ id }: Listed) => id)).toEqual(ids);
  });

  test('startIndex and count choose the page; totalResults counts all', async () => {
    const { body } = await list({ startIndex: '2', count: '2' });
    expect(body).toMatchObject({ totalResults: 5, startIndex: 2, itemsPerPage: 2 });
    expect(namesOf(body)).toEqual(['ada.byron', 'grace']);
    expect(namesOf((await list({ startIndex: '5', count: '2' })).body)).toEqual(['percent']);
    expect((await list({ startIndex: '6' })).body).toMatchObject({ totalResults: 5, itemsPerPage: 0 });
  });

  test('a startIndex below 1 is 1, a count below 0 is 0, one above 200 is 200', async () => {
    for (const startIndex of ['0', '-5'])
      expect(namesOf((await list({ startIndex, count: '1' })).body)).toEqual(['ada']);
    for (const count of ['0', '-1'])
      expect((await list({ count })).body).toMatchObject({ totalResults: 5, itemsPerPage: 0, Resources: [] });
    expect((await list({ count: '100000' })).body.itemsPerPage).toBe(5);
  });

  test.each([['startIndex'], ['count']])('a %s that is no number is 400', async (name) => {
    for (const value of ['x', '1.5', '']) {
      const answer = await list({ [name]: value });
      expect(answer).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });
      expect(answer.body.detail).toContain(`'${name}'`);
    }
  });

  test('RFC 9865: by cursor, pages stay whole while accounts are made and deleted', async () => {
    const other = await scene.createProvider('cursors');
    const made: string[] = [];
    for (let one = 0; one < 6; one++) made.push((await other.create()).id);
    const page = async (cursor: string) => (await other.ask('GET', `/Users?count=2&cursor=${cursor}`)).body;
    const first = await page('');
    expect(first.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(0, 2));
    await other.ask('DELETE', `/Users/${made[0]}`);
    await other.ask('DELETE', `/Users/${made[1]}`);
    const second = await page(first.nextCursor);
    expect(second.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(2, 4));
    const late = (await other.create()).id;
    const third = await page(second.nextCursor);
    expect(third.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(4));
    const last = await page(third.nextCursor);
    expect(last.Resources.map(({ id }: Listed) => id)).toEqual([late]);
    expect(last).not.toHaveProperty('nextCursor');
    expect(await other.ask('GET', '/Users?cursor=x')).toMatchObject({
      status: 400,
      body: { scimType: 'invalidCursor' },
    });
    expect((await other.ask('GET', '/Users?cursor=&startIndex=1')).status).toBe(400);
  });
});

describe('RFC 7644 §3.9: attributes and excludedAttributes', () => {
  const one = { filter: 'userName eq "ada@example.com"' };

  test('attributes: only these, and what is always returned', async () => {
    const { body } = await list({ ...one, attributes: 'username, name.givenName,nothing' });
    expect(body.Resources).toEqual([{ id: ids[0], userName: 'ada@example.com', name: { givenName: 'Ada' } }]);
  });

  test('attributes within lists of objects', async () => {
    const urn = 'urn:ietf:params:scim:schemas:core:2.0:User';
    const path = `${urn}:permissions.appGroup.appGroupName`;
    const { body } = await provider.ask('GET', `/Users/${ids[0]}?attributes=${path}`);
    expect(body).toEqual({
      schemas: [urn],
      id: ids[0],
      permissions: { appGroup: [{ appGroupName: 'shop' }] },
    });
  });

  test('excludedAttributes: all but these, never what is always returned', async () => {
    const { body } = await list({ ...one, excludedAttributes: 'id,permissions,meta,name.familyName' });
    expect(body.Resources).toEqual([
      {
        id: ids[0],
        userName: 'ada@example.com',
        name: { givenName: 'Ada' },
        department: 'engineering',
        active: true,
        lastSignInAt: 'N/A',
      },
    ]);
  });

  test('both are 400', async () => {
    expect((await list({ attributes: 'id', excludedAttributes: 'name' })).status).toBe(400);
  });
});
