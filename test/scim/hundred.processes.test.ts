import { afterAll, beforeAll, expect, test } from 'vitest';
import { ORIGIN } from '../setup/access.ts';
import { discoverClient, type Resource } from './client.ts';
import { accountOf, createScene, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

/** As a connector does that is not alone in the world. */
async function tenAtATime<Given, Made>(all: Given[], work: (one: Given) => Promise<Made>): Promise<Made[]> {
  const made: Made[] = [];
  for (let at = 0; at < all.length; at += 10)
    made.push(...(await Promise.all(all.slice(at, at + 10).map(work))));
  return made;
}

test('a client that knows only RFC 7644 creates, patches, lists page by page and deletes a hundred accounts', async () => {
  const client = await discoverClient(`http://127.0.0.1:${scene.port}/scim/v2`, {
    authorization: `Bearer ${scene.provider.token}`,
    'x-request-origin': ORIGIN,
  });
  const names = Array.from({ length: 100 }, (_, index) => `user-${index}@example.com`);
  const permissions = { appGroup: [{ appGroupName: 'shop', appGroupPermissions: ['basic_access'] }] };
  const created = await tenAtATime(names, (userName) =>
    client.create({
      userName,
      name: { givenName: 'Some', familyName: 'One' },
      department: 'pm',
      permissions,
    }),
  );
  expect(created.map(({ userName }) => userName)).toEqual(names);

  const patched = await tenAtATime(created, (user) =>
    client.patch(user, [{ op: 'replace', path: 'active', value: false }]),
  );
  expect(new Set(patched.map(({ active }) => active))).toEqual(new Set([false]));

  const pages: Resource[][] = [];
  for await (const page of client.list(30)) pages.push(page);
  expect(pages.map((page) => page.length)).toEqual([30, 30, 30, 10]);
  const listed = pages.flat();
  const byId = (users: Resource[]) => new Map(users.map(({ schemas: _, ...user }) => [user.id, user]));
  expect(byId(listed)).toEqual(byId(patched));

  await tenAtATime(listed, (user) => client.remove(user));
  for await (const page of client.list(30)) expect(page).toEqual([]);
});

test('a hundred creates at the same instant are all made, also when each takes a while', async () => {
  // Longer together than one of them waits for a connection.
  await scene.pool.query(`
    create function take_a_while() returns trigger language plpgsql as
      'begin perform pg_sleep(0.1); return new; end';
    create trigger take_a_while before insert on accounts for each row execute function take_a_while()`);
  try {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => scene.provider.ask('POST', '/Users', accountOf('shop'))),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
  } finally {
    await scene.pool.query('drop function take_a_while cascade');
  }
});
