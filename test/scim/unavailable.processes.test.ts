import { afterAll, beforeAll, expect, test } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { accountOf, createScene, type Provider, refusal, type Scene } from './scene.ts';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
  await provider.create({ userName: 'ada@example.com' });
});
afterAll(() => scene.stop());

const list = (query: Record<string, string>) => provider.ask('GET', `/Users?${new URLSearchParams(query)}`);

test('a search of everyone that takes longer than a second is ended, with 400 tooMany; any other wait is no fault of the search: 503', async () => {
  // Every look at the accounts takes longer than a search may.
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
});

test('a lock that another holds is 503 with Retry-After, whatever is asked', async () => {
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

test('a change that met a lock is answered with 503, and is not made when the lock is gone', async () => {
  const [one, two] = [await provider.create(), await provider.create()];
  const given = accountOf('shop', { userName: 'late@example.com' });
  const tx = await scene.pool.connect();
  let answers: Awaited<ReturnType<Provider['ask']>>[];
  try {
    // It can be read meanwhile.
    await tx.query('begin; lock table accounts in exclusive mode');
    answers = await Promise.all([
      provider.ask('POST', '/Users', given),
      provider.patch(one.id, [{ op: 'replace', path: 'active', value: false }]),
      provider.ask('DELETE', `/Users/${two.id}`),
    ]);
  } finally {
    await tx.query('rollback');
    tx.release();
  }
  for (const answer of answers) {
    expect(answer).toMatchObject(refusal(503, 'Service Unavailable'));
    expect(answer.headers.get('retry-after')).toBe('1');
  }
  // Whoever was waiting for the lock has it now, or never.
  await waitUntil(
    async () => {
      const { rows } = await scene.pool.query(
        "select 1 from pg_stat_activity where datname = current_database() and state = 'active' and query ~* 'accounts' and pid <> pg_backend_pid()",
      );
      return rows.length === 0;
    },
    { what: 'no statement on accounts' },
  );
  expect((await provider.ask('GET', `/Users/${one.id}`)).body).toEqual(one);
  expect((await provider.ask('GET', `/Users/${two.id}`)).body).toEqual(two);
  expect((await provider.ask('POST', '/Users', given)).status).toBe(201);
});
