import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let shop: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [shop = ''] = await makeWorkspaces(url, 'shop', 'school', 'full');
});
afterAll(() => database.stop());

const block = (workspace: string, externalId: string) => [
  ...['users', 'block', '--workspace', workspace, '--external-id', externalId],
];

describe('users block', () => {
  test('blocks an external id in one workspace and stores the reason', async () => {
    expect(await on.json([...block('shop', 'undefined'), '--reason', ' a bug of the till '])).toEqual({
      workspace: 'shop',
      external_id: 'undefined',
      reason: 'a bug of the till',
      blocked_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    });
    expect(await on.json(block(shop, 'null'))).toMatchObject({
      workspace: 'shop',
      reason: 'blocked by command',
    });
  });

  test('changes nothing if the external id is already blocked', async () => {
    const before = await on.json('users blocked');
    const again = await on.json([...block('shop', 'undefined'), '--reason', 'another']);
    expect(before.blocked_users).toContainEqual(again);
    expect(await on.json('users blocked')).toEqual(before);
  });

  test('stores every character unchanged and escapes control characters in the table', async () => {
    const strange = ' a/b %2F\u001b[31m\té ';
    expect(await on.json(block('school', strange))).toMatchObject({ external_id: strange });
    const { stdout } = await on.run('users blocked --workspace school');
    expect(stdout).toContain('\\u001b[31m');
    expect(stdout).not.toContain('\u001b');
  });

  test('rejects an external id that clients cannot send, and an empty reason', async () => {
    expectRefusal(await on.run(block('shop', '')), '1 to 987 bytes');
    expectRefusal(await on.run(block('shop', 'é'.repeat(494))), '1 to 987 bytes');
    expectRefusal(await on.run([...block('shop', 'x'), '--reason', ' ']), '1 to 255 characters');
  });

  test('rejects an unknown workspace and names it', async () => {
    expectRefusal(await on.run('users block --workspace moon --external-id x'), "'moon'");
  });

  test('rejects more than 10,000 blocked ids per workspace until one is unblocked', async () => {
    await database.pool.query(
      `insert into blocked_external_ids (workspace_id, external_id, reason)
       select workspaces.id, 'user-' || number, 'many' from workspaces, generate_series(1, 10000) as number
       where workspaces.name = 'full'`,
    );
    expectRefusal(await on.run(block('full', 'x')), 'at most 10000 blocked external ids', 'unblock');
    await on.json(block('full', 'user-1'));
    await on.json('users unblock --workspace full --external-id user-1');
    expect(await on.json(block('full', 'x'))).toMatchObject({ external_id: 'x' });
  });
});

describe('users blocked', () => {
  test('pages through the blocked ids of one workspace', async () => {
    const all = await on.json('users blocked --workspace shop');
    expect(all.next).toBeNull();
    expect(all.blocked_users.map((row: { external_id: string }) => row.external_id)).toEqual([
      'null',
      'undefined',
    ]);
    const first = await on.json('users blocked --workspace shop --limit 1');
    expect(first).toEqual({ blocked_users: all.blocked_users.slice(0, 1), next: `${shop}/null` });
    const rest = await on.json(['users', 'blocked', '--workspace', 'shop', '--after', first.next]);
    expect(rest).toEqual({ blocked_users: all.blocked_users.slice(1), next: null });
  });

  test('pages through the blocked ids of all workspaces, whatever characters they contain', async () => {
    const first = await on.json('users blocked --limit 3');
    expect(first.blocked_users.map((row: { workspace: string }) => row.workspace)).toEqual([
      'shop',
      'shop',
      'school',
    ]);
    expect(first.next).toMatch(/^[0-9a-f-]{36}\/%20a%2Fb%20%252F%1B/);
    const second = await on.json(['users', 'blocked', '--limit', '1', '--after', first.next]);
    expect(second.blocked_users).toMatchObject([{ workspace: 'full' }]);
  });

  test('prints a table by default', async () => {
    const { stdout } = await on.run('users blocked --workspace shop');
    expect(stdout).toMatch(/^workspace +external_id +reason +blocked_at\n/);
  });

  test('rejects an invalid value of --after', async () => {
    for (const position of ['x', 'x/y', `${shop}/%`, `${shop}/a/b`]) {
      expectRefusal(await on.run(['users', 'blocked', '--after', position]), '--after', 'previous page');
    }
  });
});

describe('users unblock', () => {
  test('unblocks an external id, which is no longer listed; a repetition changes nothing', async () => {
    const unblock = 'users unblock --workspace shop --external-id undefined';
    const row = await on.json(unblock);
    expect(row).toEqual({
      workspace: 'shop',
      external_id: 'undefined',
      reason: 'a bug of the till',
      blocked_at: expect.any(String),
      unblocked_at: expect.any(String),
    });
    expect(await on.json(unblock)).toEqual(row);
    const { blocked_users: left } = await on.json('users blocked --workspace shop');
    expect(left.map((other: { external_id: string }) => other.external_id)).toEqual(['null']);
  });

  test('an unblocked id can be blocked again for another reason', async () => {
    const again = await on.json([...block('shop', 'undefined'), '--reason', 'once more']);
    expect(again).toMatchObject({ external_id: 'undefined', reason: 'once more' });
    expect((await on.json('users blocked --workspace shop')).blocked_users).toContainEqual(again);
  });

  test('rejects an external id that was never blocked and names it', async () => {
    expectRefusal(
      await on.run('users unblock --workspace school --external-id undefined'),
      "'undefined' is not blocked",
      'users blocked',
    );
  });
});
