import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { createListedPeople, namesOf } from './listed-people.ts';

let scene: Awaited<ReturnType<typeof createListedPeople>>;
beforeAll(async () => {
  scene = await createListedPeople();
});
afterAll(() => scene.stop());

const list = (query: Record<string, string>) => scene.list(query);
const find = async (filter: string) => {
  const { status, body } = await list({ filter });
  expect(status).toBe(200);
  return namesOf(body);
};

describe('RFC 7644 §3.4.2.2: filters', () => {
  test('userName eq finds one account by email address in any case, in the specified form', async () => {
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
        Resources: [{ id: scene.ids[2], userName: 'grace@example.com', department: 'engineering' }],
      });
      expect(body.Resources[0]).not.toHaveProperty('schemas');
    }
  });

  test('no match is 200 with an empty list', async () => {
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
  ])('%s', async (filter, result) => {
    expect(await find(filter)).toEqual(result);
  });

  test('id eq, id sw and id co find by the id', async () => {
    expect(await find(`id eq "${scene.ids[2]}"`)).toEqual(['grace']);
    expect(await find(`id sw "${scene.ids[2]!.slice(0, 30)}" and id eq "${scene.ids[2]}"`)).toEqual([
      'grace',
    ]);
    expect(await find(`id co "${scene.ids[2]!.slice(4)}"`)).toEqual(['grace']);
  });

  test.each([
    ['userName eq grace@example.com', ['grace']],
    ['userName sw ada and department eq finance', ['ada.byron']],
    ['(userName eq GRACE@example.com)', ['grace']],
    ['name.familyName eq Hopper or name.familyName eq Byron', ['ada.byron', 'grace']],
    ['name eq Grace Hopper', ['grace']],
    ['active eq True and userName eq grace@example.com', ['grace']],
    ['active eq "True" and userName eq grace@example.com', ['grace']],
    ['emails eq grace@example.com', ['grace']],
    ['emails.value eq "Grace@example.com"', ['grace']],
    ['emails[type eq "work"].value eq "grace@example.com"', ['grace']],
    ['emails[type eq work and value sw grace]', ['grace']],
    ['emails[primary eq "True"].value co "race"', ['grace']],
    ['emails[type eq "home"].value eq "grace@example.com"', []],
    ['emails[type eq "work"].value eq grace@example.com or userName eq ada@example.com', ['ada', 'grace']],
  ])('as providers write it, without quotes or by an address: %s', async (filter, actual) => {
    expect(await find(filter)).toEqual(actual);
  });

  test('an id of the provider is found without quotes, also with leading zeros', async () => {
    const other = await scene.createProvider('scene.ids');
    const { id } = await other.create({ externalId: '00701984' });
    const send = async (filter: string) =>
      (await other.call('GET', `/Users?${new URLSearchParams({ filter })}`)).body.Resources;
    expect(await send('externalId eq 00701984')).toMatchObject([{ id }]);
    expect(await send('externalId eq 701984')).toEqual([]);
  });

  test('an address with an unescaped + is found, with and without quotes', async () => {
    const other = await scene.createProvider('plus');
    const userName = 'Plus+1@example.com';
    const { id } = await other.create({ userName });
    for (const filter of [
      `userName%20eq%20%22${userName}%22`,
      `userName+eq+%22${userName}%22`,
      `userName+eq+${userName}`,
      'userName+sw+%22plus+1%22',
      `emails[type%20eq%20%22work%22].value%20eq%20%22${userName}%22`,
      `userName%20eq%20%22${encodeURIComponent(userName)}%22`,
    ]) {
      const { body } = await other.call('GET', `/Users?filter=${filter}`);
      expect({ filter, body }).toMatchObject({ filter, body: { Resources: [{ id, userName }] } });
    }
  });

  test('a wildcard of SQL has no special meaning', async () => {
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
    'userName eq "grace@example.com',
    'userName eq',
    'userName "a"',
    'userName eq "a" and',
    'userName eq "a" "b"',
    'userName eq "a")',
    'userName eq "\\x"',
    'userName eq "\\u0000"',
    'userName eq 7',
    'emails[type pr]',
    'emails[display eq "x"]',
    'active eq "maybe"',
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
    "userName eq 'ada@example.com'",
    'displayName eq ‘Ada’',
  ])('an invalid or unsupported filter is 400 invalidFilter: %s', async (filter) => {
    const { status, body } = await list({ filter });
    expect(body).toMatchObject({ scimType: 'invalidFilter', status: 400 });
    expect(body.detail).toMatch(/^Request is unparsable, syntactically incorrect, or violates schema\./);
    expect(status).toBe(400);
  });

  test('a filter that is given twice is 400', async () => {
    expect((await scene.provider.call('GET', '/Users?filter=a&filter=b')).status).toBe(400);
  });

  test.skipIf(isAboutOnePostgres('its planner; every node has a copy of the accounts with the same indexes'))(
    'every comparison except co uses an index',
    async () => {
      const plans = {
        // The index for the console's sign-in covers addresses as well.
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
          [scene.provider.companyId],
        );
        await tx.query('analyze accounts');
        for (const [condition, index] of Object.entries(plans)) {
          const { rows } = await tx.query(
            `explain select 1 from accounts
           where company_id = '${scene.provider.companyId}' and ${condition.replace('$1', "'ada'")}`,
          );
          const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
          expect(plan).toMatch(index);
        }
      } finally {
        await tx.query('rollback');
        tx.release();
      }
    },
  );
});
