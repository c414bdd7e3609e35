import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAccount, createCompany } from '../setup/access.ts';
import { type Console, html, openConsole, page, post } from './console-scene.ts';
import { DEFAULT_COMPANY, type Visitor } from './people.ts';

/**
 * More workspaces than a page loads. Most sort before “shop”: all of them in a language collation, four fifths in byte
 * order.
 */
const MANY = 1500;

let scene: Console;
let admin: Visitor;
let company = '';
let account = '';
beforeAll(async () => {
  scene = await openConsole();
  admin = (await scene.people.arrive(['admin'])).visitor;
  company = await createCompany(scene.installation.database.pool as never, 'zebra and company');
  account = await createAccount(scene.installation.database.pool as never, company, 'zoe@example.com');
  await scene.query(
    `insert into workspaces (id, name, company_id)
     select gen_random_uuid(), (array['Äpfel ', 'apple ', 'Apple ', 'APPLE-', 'a_pple'])[n % 5 + 1] || n, $1
     from generate_series(1, ${MANY}) as n`,
    DEFAULT_COMPANY,
  );
  await scene.query(
    `insert into companies (id, name) select gen_random_uuid(), 'a company ' || n from generate_series(1, 250) as n`,
  );
});
afterAll(() => scene.installation.stop());

describe.each(['BOARD_USER', 'a company administrator'])('with 1,500 other workspaces, %s', (who) => {
  const visitor = () => (who === 'BOARD_USER' ? scene.operator : admin);
  const statusOf = async (path: string) => (await page(visitor(), path)).status;

  test('opens pages of a workspace beyond the first thousand', async () => {
    const { shop, user, integration, run, key } = scene;
    const deadLetter = await scene.letterIn(shop);
    for (const path of [
      ...[`/workspaces/${shop}`, `/dead-letters/${deadLetter}`, `/keys/${key}`, `/syncs/${integration}`],
      ...[`/syncs/${integration}/runs/${run}`, `/users/${user}?workspace=shop`],
      `/users/${user}/delete?workspace=${shop}`,
    ])
      expect([path, await statusOf(path)]).toEqual([path, 200]);
  });

  test('lists data of such a workspace by its name or id, unmasked', async () => {
    await scene.letterIn(scene.shop, { reason: 'of the shop' });
    for (const [path, shown] of [
      ['/users?q=user-1&workspace=shop', 'ada@gmail.com'],
      [`/dead-letters?workspace=${scene.shop}`, 'of the shop'],
      ['/keys?workspace=shop', 'till'],
      ['/syncs?workspace=shop', 'contacts'],
      ['/workspaces?name=shop', scene.shop],
    ] as const) {
      const answer = await visitor().get(path, html);
      const text = answer.status === 303 ? answer.headers.get('location')! : await answer.text();
      expect([path, answer.status < 400, text.includes(shown)]).toEqual([path, true, true]);
    }
  });

  test('replays and creates in such a workspace', async () => {
    const deadLetter = await scene.letterIn(scene.shop);
    expect((await post(visitor(), `/dead-letters/${deadLetter}`, { action: 'replay' })).status).toBe(303);
    const make = { workspace: scene.shop, name: 'till 5', permissions: 'users.track' };
    expect((await post(visitor(), '/keys', make)).status).toBe(200);
  });

  test('lists each workspace exactly once, whatever the collation of the database', async () => {
    const seen: string[] = [];
    for (let path: string | undefined = '/workspaces'; path !== undefined; ) {
      const { text } = await page(visitor(), path);
      seen.push(...[...text.matchAll(/<a href="\/workspaces\/([0-9a-f-]{36})">/g)].map(([, id]) => id!));
      path = /rel="next" href="([^"]+)"/.exec(text)?.[1]?.replaceAll('&amp;', '&');
    }
    const rows = (await scene.query('select id from workspaces')) as { id: string }[];
    expect(seen.sort()).toEqual(rows.map(({ id }) => id).sort());
  });
});

test('with 250 other companies, a company is found by its name or id', async () => {
  for (const which of [company, 'zebra and company']) {
    const { status, text } = await page(scene.operator, `/accounts?company=${encodeURIComponent(which)}`);
    expect([status, text.includes(`/accounts/${account}`)]).toEqual([200, true]);
    expect((await page(scene.operator, `/permission-sets?company=${encodeURIComponent(which)}`)).status).toBe(
      200,
    );
    expect((await page(admin, `/accounts?company=${encodeURIComponent(which)}`)).status).toBe(404);
  }
  expect((await page(scene.operator, '/accounts?company=no+such')).status).toBe(404);
  const { text } = await page(scene.operator, `/audit?company=${company}`);
  expect(text).toContain(company);
});

test('an administrator cannot find a workspace of another company, even by its name', async () => {
  const theirs = uuidv7();
  await scene.query(
    "insert into workspaces (id, name, company_id) values ($1, 'theirs', $2)",
    theirs,
    company,
  );
  const deadLetter = await scene.letterIn(theirs);
  for (const path of [
    ...[`/workspaces/${theirs}`, '/users?q=x&workspace=theirs'],
    ...[`/keys?workspace=${theirs}`, `/dead-letters/${deadLetter}`, '/requests?workspace=theirs'],
  ])
    expect([path, (await page(admin, path)).status]).toEqual([path, 404]);
  const named = '/workspaces?name=theirs';
  expect((await page(admin, named)).text).toContain('No workspaces found');
  expect((await page(scene.operator, named)).text).toContain(`/workspaces/${theirs}`);
  expect((await page(scene.operator, `/workspaces/${theirs}`)).status).toBe(200);
});
