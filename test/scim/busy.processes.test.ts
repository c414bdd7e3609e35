import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ORIGIN } from '../setup/access.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { discoverClient, type Resource } from './client.ts';
import { accountOf, createScene, type Provider, refusal, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

/** Sends ten requests at a time, as a connector does. */
async function tenAtATime<Given, Made>(all: Given[], work: (one: Given) => Promise<Made>): Promise<Made[]> {
  const made: Made[] = [];
  for (let at = 0; at < all.length; at += 10)
    made.push(...(await Promise.all(all.slice(at, at + 10).map(work))));
  return made;
}

test('a client of RFC 7644 alone creates, patches, lists and deletes a hundred accounts', async () => {
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

const noTriggers = isAboutOnePostgres('a Citus takes no trigger on a table that every node has');

test.skipIf(noTriggers)(
  'a hundred simultaneous creates all succeed, also if each takes a while',
  async () => {
    // Together they take longer than a request may wait for a connection.
    await scene.pool.query(`
    create function take_a_while() returns trigger language plpgsql as
      'begin perform pg_sleep(0.1); return new; end';
    create trigger take_a_while before insert on accounts for each row execute function take_a_while()`);
    try {
      const answers = await Promise.all(
        Array.from({ length: 100 }, () => scene.provider.call('POST', '/Users', accountOf('shop'))),
      );
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    } finally {
      await scene.pool.query('drop function take_a_while cascade');
    }
  },
);

describe('while Postgres is busy', () => {
  let provider: Provider;
  beforeAll(async () => {
    provider = scene.provider;
    await provider.create({ userName: 'ada@example.com' });
  });

  const list = (query: Record<string, string>) =>
    provider.call('GET', `/Users?${new URLSearchParams(query)}`);

  const noViews = isAboutOnePostgres(
    'a Citus renames no table within a script, and puts no view in its place',
  );

  test.skipIf(noViews)(
    'a slow search of all accounts is ended with 400 tooMany; any other long wait is 503',
    async () => {
      // Every read of the accounts takes longer than a search may.
      await scene.pool.query(
        'alter table accounts rename to real_accounts; create view accounts as select real_accounts.* from real_accounts, pg_sleep(1.2)',
      );
      try {
        const tooMany = { status: 400, body: { scimType: 'tooMany', status: 400 } };
        const [everyone, one, all] = await Promise.all([
          list({ filter: 'userName co "a"' }),
          list({ filter: 'userName eq "ada@example.com"' }),
          list({}),
        ]);
        expect(everyone).toMatchObject(tooMany);
        for (const answer of [one, all]) {
          expect(answer).toMatchObject({ status: 503, body: { status: 503 } });
          expect(answer.headers.get('retry-after')).toBe('1');
        }
      } finally {
        await scene.pool.query('drop view accounts; alter table real_accounts rename to accounts');
      }
      expect((await list({ filter: 'userName co "a"' })).status).toBe(200);
    },
  );

  test('a lock of another session is 503 with Retry-After, for every request', async () => {
    const tx = await scene.pool.connect();
    try {
      await tx.query('begin; lock table accounts in access exclusive mode');
      for (const query of [{}, { filter: 'userName co "a"' }, { filter: 'userName eq "a"' }]) {
        const answer = await list(query);
        expect(answer).toMatchObject({ status: 503, body: { detail: 'Service Unavailable', status: 503 } });
        expect(answer.headers.get('retry-after')).toBe('1');
      }
    } finally {
      await tx.query('rollback');
      tx.release();
    }
    expect((await list({})).status).toBe(200);
  });

  test('a change that met a lock is answered with 503, and is not applied after the lock', async () => {
    const [one, two] = [await provider.create(), await provider.create()];
    const given = accountOf('shop', { userName: 'late@example.com' });
    const tx = await scene.pool.connect();
    let answers: Awaited<ReturnType<Provider['call']>>[];
    try {
      // Reads are possible during the lock.
      await tx.query('begin; lock table accounts in exclusive mode');
      answers = await Promise.all([
        provider.call('POST', '/Users', given),
        provider.patch(one.id, [{ op: 'replace', path: 'active', value: false }]),
        provider.call('DELETE', `/Users/${two.id}`),
      ]);
    } finally {
      await tx.query('rollback');
      tx.release();
    }
    for (const answer of answers) {
      expect(answer).toMatchObject(refusal(503, 'Service Unavailable'));
      expect(answer.headers.get('retry-after')).toBe('1');
    }
    // Wait until all statements that waited for the lock have ended.
    await waitUntil(
      async () => {
        const { rows } = await scene.pool.query(
          "select 1 from pg_stat_activity where datname = current_database() and state = 'active' and query ~* 'accounts' and pid <> pg_backend_pid()",
        );
        return rows.length === 0;
      },
      { what: 'no statement on accounts' },
    );
    expect((await provider.call('GET', `/Users/${one.id}`)).body).toEqual(one);
    expect((await provider.call('GET', `/Users/${two.id}`)).body).toEqual(two);
    expect((await provider.call('POST', '/Users', given)).status).toBe(201);
  });
});
