import { beforeAll, expect, test } from 'vitest';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
beforeAll(async () => {
  on = penstockOn((await createDatabase()).url);
});

test('lists created workspaces with id and name, oldest first', async () => {
  const shop = await on.json('workspaces create --name shop');
  const school = await on.json(['workspaces', 'create', '--name', '  school of fish ']);
  expect(shop).toEqual({
    workspace_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    company: 'default',
    shard: 0,
    name: 'shop',
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
  });
  expect(school.name).toBe('school of fish');
  expect(await on.json('workspaces list')).toEqual({ workspaces: [shop, school], next: null });
});

test('pages through a list with next as the value of --after', async () => {
  const first = await on.json('workspaces list --limit 1');
  expect(first.workspaces.map((row: { name: string }) => row.name)).toEqual(['shop']);
  const second = await on.json(['workspaces', 'list', '--limit', '1', '--after', first.next]);
  expect(second.workspaces.map((row: { name: string }) => row.name)).toEqual(['school of fish']);
  expect(second.next).toBeNull();
});

test('prints an aligned table, and the hint for the next page on stderr', async () => {
  const { code, stdout, stderr } = await on.run('workspaces list --limit 1');
  const [head = '', row = '', ...rest] = stdout.trimEnd().split('\n');
  expect(head).toMatch(/^workspace_id +company +name +shard +created_at$/);
  expect(row.indexOf('shop')).toBe(head.indexOf('name'));
  expect(rest).toEqual([]);
  expect(code).toBe(0);
  expect(stderr).toMatch(/^more workspaces: add --after [0-9a-f-]{36}\n$/);
});

test('rejects a name that is already used', async () => {
  expectRefusal(await on.run('workspaces create --name shop --json'), "'shop'", 'already exists');
});

test('rejects an empty or too long name with the rule', async () => {
  expectRefusal(await on.run(['workspaces', 'create', '--name', ' ']), '1 to 255 characters');
  expectRefusal(await on.run(['workspaces', 'create', '--name', 'x'.repeat(256)]), '1 to 255 characters');
});

test('escapes control characters in names', async () => {
  await on.json(['workspaces', 'create', '--name', '\u001b[31m\u009b\nx']);
  const { stdout } = await on.run('workspaces list');
  expect(stdout).toContain('\\u001b[31m\\u009b\\u000ax');
  const { workspaces } = await on.json('workspaces list');
  expect(workspaces.at(-1).name).toBe('\u001b[31m\u009b\nx');
});

test('rejects an invalid --limit and --after with the rule', async () => {
  expectRefusal(await on.run('workspaces list --limit 0'), '--limit', 'whole number from 1');
  expectRefusal(await on.run('workspaces list --limit 1.5'), 'whole number from 1');
  expectRefusal(await on.run('workspaces list --after x'), '--after', 'UUID');
});
