import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { permissionPresets, permissions } from '../../src/schemas/permissions.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let school: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  [, school = ''] = await makeWorkspaces(url, 'shop', 'school');
});
afterAll(() => database.stop());

describe('keys create', () => {
  test('shows the secret once and stores only its SHA-256 hash', async () => {
    const key = await on.json('keys create --workspace shop --permissions users.track,users.merge');
    expect(key).toEqual({
      api_key: expect.stringMatching(/^pk_.{43}$/),
      api_key_id: expect.any(String),
      workspace: 'shop',
      name: 'API key',
      identifier: key.api_key.slice(0, 8),
      permissions: ['users.track', 'users.merge'],
      ip_allowlist: [],
      created_at: expect.any(String),
      last_seen_at: null,
      revoked_at: null,
    });
    const { rows } = await database.pool.query(
      'select to_jsonb(api_keys)::text as stored, key_hash from api_keys',
    );
    expect(rows).toHaveLength(1);
    expect(rows[0].key_hash).toEqual(createHash('sha256').update(key.api_key).digest());
    expect(rows[0].stored).not.toContain(key.api_key);
    const listed = await on.run('keys list --json');
    expect(listed.stdout).toContain(key.identifier);
    expect(listed.stdout).not.toContain(key.api_key);
  });

  test('accepts a name, an allowlist of addresses and subnets, and a workspace id', async () => {
    const key = await on.json([
      ...['keys', 'create', '--workspace', school, '--permissions', ' users.track '],
      ...['--name', 'till 4', '--ip-allowlist', '10.0.0.0/8, 1.2.3.4,2001:db8::/32,::1'],
    ]);
    expect(key).toMatchObject({
      workspace: 'school',
      name: 'till 4',
      permissions: ['users.track'],
      ip_allowlist: ['10.0.0.0/8', '1.2.3.4', '2001:db8::/32', '::1'],
    });
  });

  test('all selects every permission', async () => {
    const key = await on.json('keys create --workspace shop --permissions all');
    expect(key.permissions).toEqual(permissions);
  });

  test('prints that the secret cannot be shown again', async () => {
    const { stdout } = await on.run('keys create --workspace shop --permissions users.track');
    expect(stdout).toMatch(/^api_key +pk_/);
    expect(stdout).toContain('cannot be shown again');
  });

  test('rejects an unknown permission and lists the known ones', async () => {
    const outcome = await on.run('keys create --workspace shop --permissions users.track,users.fly --json');
    expectRefusal(outcome, 'Unknown permission: users.fly', 'users.merge');
  });

  test('gives a key the permissions of its preset, and further ones', async () => {
    const key = await on.json('keys create --workspace shop --preset import --permissions users.merge');
    expect(key.permissions.toSorted()).toEqual(
      [...permissionPresets.import.permissions, 'users.merge'].toSorted(),
    );
  });

  test('requires a preset or permissions', async () => {
    const outcome = await on.run('keys create --workspace shop');
    expectRefusal(outcome, 'at least one permission or a preset is required');
  });

  test('rejects an empty list of permissions', async () => {
    expectRefusal(
      await on.run(['keys', 'create', '--workspace', 'shop', '--permissions', ',']),
      'The permissions are',
    );
  });

  test('rejects an invalid allowlist entry and names it', async () => {
    const outcome = await on.run(
      'keys create --workspace shop --permissions all --ip-allowlist 10.0.0.0/8,10.0.0.0/33',
    );
    expectRefusal(outcome, 'Invalid: 10.0.0.0/33', 'IP address or a subnet');
  });

  test('rejects an unknown workspace and names it', async () => {
    expectRefusal(
      await on.run('keys create --workspace moon --permissions all'),
      "'moon'",
      'workspaces list',
    );
  });
});

describe('keys list', () => {
  test('lists the keys of one or all workspaces, oldest first', async () => {
    const all = await on.json('keys list');
    const atSchool = await on.json('keys list --workspace school');
    expect(all.keys).toHaveLength(5);
    expect(atSchool.keys.map((key: { name: string }) => key.name)).toEqual(['till 4']);
    const second = await on.json(['keys', 'list', '--limit', '2', '--after', all.keys[0].api_key_id]);
    expect(second).toEqual({ keys: all.keys.slice(1, 3), next: all.keys[2].api_key_id });
  });

  test('shows the number of permissions of each key, or all, in the table', async () => {
    const { stdout } = await on.run('keys list --workspace shop');
    expect(stdout).toMatch(/^api_key_id +work\S+ +name +identifier +per\S+ +state +last_seen_at/);
    expect(stdout).toMatch(/ 2 +active /);
    expect(stdout).toMatch(/ all +active /);
  });

  test('shows when a key was last seen', async () => {
    await database.pool.query(
      "update api_keys set last_seen_at = '2026-07-01T10:00:00Z' where name = 'till 4'",
    );
    const { keys } = await on.json('keys list --workspace school');
    expect(keys[0].last_seen_at).toBe('2026-07-01T10:00:00.000Z');
  });
});

describe('keys revoke', () => {
  test('revokes by identifier, and a repetition changes nothing', async () => {
    const { identifier } = await on.json('keys create --workspace shop --permissions all --name lost');
    const revoked = await on.json(['keys', 'revoke', '--identifier', identifier]);
    expect(revoked).toMatchObject({ name: 'lost', revoked_at: expect.any(String) });
    expect(await on.json(['keys', 'revoke', '--identifier', identifier])).toEqual(revoked);
    const { keys } = await on.json('keys list --workspace shop');
    expect(keys.filter((key: { revoked_at: string | null }) => key.revoked_at)).toEqual([revoked]);
  });

  test('revokes the key with the given id and rejects a second id', async () => {
    const { api_key_id: id } = await on.json('keys create --workspace shop --permissions all');
    expectRefusal(await on.run(`keys revoke ${id} --id ${id}`), 'name the key once');
    expect(await on.json(`keys revoke ${id}`)).toMatchObject({
      api_key_id: id,
      revoked_at: expect.any(String),
    });
  });

  test('revokes by id', async () => {
    const { api_key_id: id } = await on.json('keys create --workspace shop --permissions all');
    expect(await on.json(['keys', 'revoke', '--id', id])).toMatchObject({
      api_key_id: id,
      revoked_at: expect.any(String),
    });
  });

  test('rejects an identifier that several keys share, lists their ids and revokes no key', async () => {
    const one = await on.json('keys create --workspace shop --permissions all');
    const two = await on.json('keys create --workspace school --permissions all');
    await database.pool.query('update api_keys set identifier = $1 where id = any($2::uuid[])', [
      'pk_twins',
      [one.api_key_id, two.api_key_id],
    ]);
    expectRefusal(await on.run('keys revoke --identifier pk_twins'), one.api_key_id, two.api_key_id, '--id');
    const { rowCount } = await database.pool.query(
      "select from api_keys where identifier = 'pk_twins' and revoked_at is null",
    );
    expect(rowCount).toBe(2);
  });

  test('rejects an unknown key and names it', async () => {
    expectRefusal(await on.run('keys revoke --identifier pk_nobod'), "'pk_nobod'", 'keys list');
    expectRefusal(await on.run('keys revoke'), 'keys revoke <id>', '--identifier');
    expectRefusal(await on.run('keys revoke --id 7'), 'UUID');
  });
});
