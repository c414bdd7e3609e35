import { beforeAll, describe, expect, test } from 'vitest';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  await makeWorkspaces(url, 'shop', 'school');
});

describe('groups create', () => {
  test.each(['email', 'sms', 'whatsapp'])(
    'creates a group of the channel %s and prints its id',
    async (channel) => {
      const group = await on.json([
        'groups',
        'create',
        '--workspace',
        'shop',
        '--name',
        `News by ${channel}`,
        '--channel',
        channel,
      ]);
      expect(group).toEqual({
        subscription_group_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        workspace: 'shop',
        name: `News by ${channel}`,
        channel,
        created_at: expect.any(String),
        archived_at: null,
      });
    },
  );

  test('rejects an unknown channel and lists the known channels', async () => {
    const outcome = await on.run('groups create --workspace shop --name Post --channel pigeon --json');
    expectRefusal(outcome, "'pigeon'", 'email, sms, whatsapp');
  });

  test('rejects a name that is already used in the workspace', async () => {
    const again = ['groups', 'create', '--name', 'News by sms', '--channel', 'sms', '--workspace'];
    expectRefusal(await on.run([...again, 'shop']), "'News by sms'");
    expect(await on.json([...again, 'school'])).toMatchObject({ workspace: 'school' });
  });

  test('rejects an unknown workspace and names it', async () => {
    expectRefusal(await on.run('groups create --workspace moon --name News --channel sms'), "'moon'");
  });
});

describe('groups list', () => {
  test('pages through the groups of one or all workspaces', async () => {
    const all = await on.json('groups list');
    expect(all.subscription_groups).toHaveLength(4);
    const shop = await on.json('groups list --workspace shop --limit 2');
    expect(shop.subscription_groups).toEqual(all.subscription_groups.slice(0, 2));
    const rest = await on.json(['groups', 'list', '--workspace', 'shop', '--after', shop.next]);
    expect(rest).toEqual({ subscription_groups: all.subscription_groups.slice(2, 3), next: null });
    expect((await on.run('groups list')).stdout).toMatch(/^subscription_group_id +workspace +name +channel /);
  });
});

describe('groups archive', () => {
  test('archives a group, which stays listed; a repetition changes nothing', async () => {
    const { subscription_groups: groups } = await on.json('groups list --workspace school');
    const id = groups[0].subscription_group_id;
    const archived = await on.json(['groups', 'archive', id]);
    expect(archived).toEqual({ ...groups[0], archived_at: expect.any(String) });
    expect(await on.json(['groups', 'archive', id])).toEqual(archived);
    expect((await on.json('groups list --workspace school')).subscription_groups).toEqual([archived]);
  });

  test('rejects an unknown id and names it', async () => {
    const id = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';
    expectRefusal(await on.run(['groups', 'archive', id]), id, 'groups list');
    expectRefusal(await on.run('groups archive News'), 'UUID');
  });
});
