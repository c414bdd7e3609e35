import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createListedPeople, type Listed, namesOf } from './listed-people.ts';

let scene: Awaited<ReturnType<typeof createListedPeople>>;
beforeAll(async () => {
  scene = await createListedPeople();
});
afterAll(() => scene.stop());

const list = (query: Record<string, string>) => scene.list(query);

describe('RFC 7644 §3.4.2.4: pages', () => {
  test('without a filter all accounts are listed, in order of creation', async () => {
    const { body } = await list({});
    expect(body).toMatchObject({ totalResults: 5, startIndex: 1, itemsPerPage: 5 });
    expect(body.Resources.map(({ id }: Listed) => id)).toEqual(scene.ids);
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

  test.each([['startIndex'], ['count']])('a %s that is not a number is 400', async (name) => {
    for (const value of ['x', '1.5', '']) {
      const answer = await list({ [name]: value });
      expect(answer).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });
      expect(answer.body.detail).toContain(`'${name}'`);
    }
  });

  test('RFC 9865: pages by cursor stay complete while accounts are created and deleted', async () => {
    const other = await scene.createProvider('cursors');
    const made: string[] = [];
    for (let one = 0; one < 6; one++) made.push((await other.create()).id);
    const page = async (cursor: string) => (await other.call('GET', `/Users?count=2&cursor=${cursor}`)).body;
    const first = await page('');
    expect(first.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(0, 2));
    await other.call('DELETE', `/Users/${made[0]}`);
    await other.call('DELETE', `/Users/${made[1]}`);
    const second = await page(first.nextCursor);
    expect(second.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(2, 4));
    const late = (await other.create()).id;
    const third = await page(second.nextCursor);
    expect(third.Resources.map(({ id }: Listed) => id)).toEqual(made.slice(4));
    const last = await page(third.nextCursor);
    expect(last.Resources.map(({ id }: Listed) => id)).toEqual([late]);
    expect(last).not.toHaveProperty('nextCursor');
    expect(await other.call('GET', '/Users?cursor=x')).toMatchObject({
      status: 400,
      body: { scimType: 'invalidCursor' },
    });
    expect((await other.call('GET', '/Users?cursor=&startIndex=1')).status).toBe(400);
  });
});

describe('RFC 7644 §3.9: attributes and excludedAttributes', () => {
  const one = { filter: 'userName eq "ada@example.com"' };

  test('attributes: only the named ones, and those that are always returned', async () => {
    const { body } = await list({ ...one, attributes: 'username, name.givenName,nothing' });
    expect(body.Resources).toEqual([
      { id: scene.ids[0], userName: 'ada@example.com', name: { givenName: 'Ada' } },
    ]);
  });

  test('attributes within lists of objects', async () => {
    const urn = 'urn:ietf:params:scim:schemas:core:2.0:User';
    const path = `${urn}:permissions.appGroup.appGroupName`;
    const { body } = await scene.provider.call('GET', `/Users/${scene.ids[0]}?attributes=${path}`);
    expect(body).toEqual({
      schemas: [urn],
      id: scene.ids[0],
      permissions: { appGroup: [{ appGroupName: 'shop' }] },
    });
  });

  test('excludedAttributes: all but the named ones, and those that are always returned', async () => {
    const { body } = await list({ ...one, excludedAttributes: 'id,permissions,meta,name.familyName' });
    expect(body.Resources).toEqual([
      {
        id: scene.ids[0],
        userName: 'ada@example.com',
        name: { givenName: 'Ada' },
        emails: [{ value: 'ada@example.com', type: 'work', primary: true }],
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
