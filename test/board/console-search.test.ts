import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Console, openConsole, page } from './console-scene.ts';
import { inWorkspace, type Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene?.installation.stop());

/** Signs in an account with permissions in one workspace. */
async function arrive(workspace: string, permissions: string[]): Promise<Visitor> {
  const appGroups = [{ workspace, permissions, teams: [] }];
  return (await scene.people.arrive([], { appGroups })).visitor;
}

/** Returns the paths of the results, without their query. */
async function find(visitor: Visitor, text: string): Promise<string[]> {
  const { status, text: body } = await page(visitor, `/search?q=${encodeURIComponent(text)}`);
  expect(status).toBe(200);
  const [, match = ''] = /<div id="found">(.*?)<\/div>/s.exec(body) ?? [];
  return [...match.matchAll(/href="([^"?]+)/g)].map(([, href]) => href!);
}

test('a search finds pages, users, requests, dead letters, keys, streams and other entries', async () => {
  const { operator, user, key, segment, stream, shop, group, center, integration } = scene;
  expect(await find(operator, 'dead')).toContain('/dead-letters');
  for (const text of ['user-1', 'ADA@gmail.com'])
    expect(await find(operator, text)).toContain(`/users/${user}`);
  const deadLetter = await scene.letterIn(shop);
  expect(await find(operator, deadLetter)).toContain(`/dead-letters/${deadLetter}`);
  const request = uuidv7();
  expect(await find(operator, request)).toContain(`/requests/${request}`);
  for (const [text, path] of [
    ['TIL', `/keys/${key}`],
    [key, `/keys/${key}`],
    ['teal', `/segments/${segment}`],
    ['crm', `/streams/${stream}`],
    ['sho', `/workspaces/${shop}`],
    ['news', `/groups/${group}`],
    ['choi', `/preference-centers/${center}`],
    ['contac', `/syncs/${integration}`],
  ] as const)
    expect([text, await find(operator, text)]).toEqual([text, expect.arrayContaining([path])]);
});

test('a search finds only what the account may see', async () => {
  const inShop = await arrive(scene.shop, inWorkspace['views users']!);
  expect(await find(inShop, 'user-1')).toContain(`/users/${scene.user}`);
  // An email address is personal data, also as a search text.
  expect(await find(inShop, 'ada@gmail.com')).toEqual(['/users']);
  for (const text of ['till', 'teal', 'crm', 'dead', uuidv7()])
    expect(await find(inShop, text)).toEqual(['/users']);
  const elsewhere = await arrive(scene.school, ['admin']);
  for (const text of ['till', 'teal', 'crm', 'shop']) expect(await find(elsewhere, text)).toEqual(['/users']);
  const deadLetter = await scene.letterIn(scene.shop);
  expect(await find(elsewhere, deadLetter)).not.toContain(`/dead-letters/${deadLetter}`);
});

test('a sign-in opens Users for support, Requests for engineers and Health for operators', async () => {
  const firstOf = async (visitor: Visitor) => (await page(visitor, '/home')).location;
  expect(await firstOf(scene.operator)).toBe('/');
  expect(await firstOf(await arrive(scene.shop, ['view_user_profile', 'view_event_user_log']))).toBe(
    '/users',
  );
  expect(await firstOf(await arrive(scene.shop, ['dev_console']))).toBe('/requests');
  expect(await firstOf(await arrive(scene.shop, ['dev_console', 'view_user_profile', 'view_api_keys']))).toBe(
    '/requests',
  );
  expect(await firstOf(await arrive(scene.shop, ['manage_subscription_groups']))).toBe('/');
});

test('the menu counts problems and dead letters that the account may see', async () => {
  const badgesOf = async (visitor: Visitor) => {
    const { text } = await page(visitor, '/sessions');
    const result = [
      ...text.matchAll(
        /<a href="([^"]+)"[^>]*>[^<]*<\/a>(?:<span data-live="problem_count">)? <span class="count [a-z]+" title="([^"]+)"/g,
      ),
    ];
    return Object.fromEntries(result.map(([, path, title]) => [path, title]));
  };
  await scene.query(
    'update stream_destinations set failures = 30, failed_at = now() where id = $1',
    scene.stream,
  );
  await scene.query('delete from dead_letters');
  await scene.letterIn(scene.shop);
  await scene.letterIn(scene.school);
  // The first page after five seconds shows the older numbers while new ones are read.
  await expect
    .poll(() => badgesOf(scene.operator), { timeout: 20_000 })
    .toMatchObject({
      '/dead-letters': '2 need attention',
      '/streams': '1 problem',
      '/': expect.stringMatching(/^\d+ problems$/),
    });
  // On the page of the problems, the number is that of the list, however old the shared reading is.
  await scene.query('update stream_destinations set failures = 0 where id = $1', scene.stream);
  const { text: health } = await page(scene.operator, '/');
  const listed = health.match(/<li class="finding/g)?.length ?? 0;
  expect(health).toContain(`title="${listed} problem${listed === 1 ? '' : 's'}"`);
  await scene.query('update stream_destinations set failures = 30 where id = $1', scene.stream);
  const developer = await badgesOf(await arrive(scene.shop, ['dev_console']));
  expect(developer['/dead-letters']).toBe('1 need attention');
  expect(developer['/streams']).toBeUndefined();
  const elsewhere = await badgesOf(await arrive(scene.school, ['admin']));
  expect([elsewhere['/dead-letters'], elsewhere['/streams']]).toEqual(['1 need attention', undefined]);
});
