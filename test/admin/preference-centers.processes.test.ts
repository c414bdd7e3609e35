import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createScene, type Scene } from '../preferences/scene.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { expectRefusal, type PenstockOn, penstockOn } from './penstock.ts';

let scene: Scene;
let on: PenstockOn;
let center: string;
beforeAll(async () => {
  scene = await createScene('postgres');
  on = penstockOn(scene.fleet.env.DATABASE_URL!);
  center = await scene.addCenter('<p>page\nof two lines</p>');
  await scene.addCenter('second');
  await scene.addUser('ada', 'ada@example.com');
  await scene.addUser('bob', 'bob@example.com');
});
afterAll(() => scene?.stop());

const status = async (url: string) => (await fetch(url)).status;

test('list pages through the centers of a workspace without their templates', async () => {
  const first = await on.json('preference-centers list --workspace shop --limit 1');
  expect(first.preference_centers).toEqual([
    {
      preference_center_api_id: center,
      name: 'center-1',
      state: 'active',
      created_at: expect.any(String),
      updated_at: expect.any(String),
    },
  ]);
  const rest = await on.json(['preference-centers', 'list', '--workspace', 'shop', '--after', first.next]);
  expect(rest).toMatchObject({ preference_centers: [{ name: 'center-2' }], next: null });
  expectRefusal(await on.run('preference-centers list --workspace moon'), "'moon'");
});

test('show prints all fields and when the links were revoked', async () => {
  expect(await on.json(`preference-centers show ${center} --workspace shop`)).toMatchObject({
    preference_center_page_html: '<p>page\nof two lines</p>',
    preference_center_title: 'Choices',
    links_revoked_at: null,
  });
  const id = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';
  expectRefusal(
    await on.run(`preference-centers show ${id} --workspace shop`),
    id,
    'preference-centers list',
  );
});

test('create and change read templates from files, and write audit entries', async () => {
  const folder = temporaryFolder();
  const file = (name: string, text: string | Buffer) => {
    writeFileSync(path.join(folder, name), text);
    return path.join(folder, name);
  };
  const [page, saved] = [file('page.html', '<p>Choose\r\n</p>\n'), file('saved.html', '<p>Saved</p>')];
  const create = (name: string, ...more: string[]) => [
    ...['preference-centers', 'create', '--workspace', 'shop', '--name', name],
    ...['--page', page, '--confirmation', saved, ...more],
  ];
  const { preference_center_api_id: id, ...created } = await on.json(
    create('from-files', '--state', 'draft'),
  );
  expect(created).toMatchObject({
    ...{ name: 'from-files', state: 'draft', preference_center_title: 'Preference Center' },
    ...{ preference_center_page_html: '<p>Choose\r\n</p>\n', confirmation_page_html: '<p>Saved</p>' },
    preference_center_options: { 'meta-viewport-content': 'width=device-width, initial-scale=1' },
  });
  const icons = file('icons.html', '<link rel="icon" href="https://example.com/icon.png">\n');
  const change = (...options: string[]) => [
    ...['preference-centers', 'change', 'from-files', '--workspace', 'shop', ...options],
  ];
  await on.json(change('--icons', icons, '--state', 'active'));
  const changed = await on.json(change('--title', 'Your choices'));
  expect(changed).toMatchObject({
    ...{ preference_center_api_id: id, state: 'active', preference_center_title: 'Your choices' },
    ...{ preference_center_page_html: '<p>Choose\r\n</p>\n', confirmation_page_html: '<p>Saved</p>' },
    preference_center_options: {
      'meta-viewport-content': 'width=device-width, initial-scale=1',
      'links-tags': [{ rel: 'icon', href: 'https://example.com/icon.png' }],
    },
  });
  const { entries } = await on.json('audit');
  expect(entries.map(({ action }: { action: string }) => action)).toEqual(
    expect.arrayContaining(['preference_centers.create', 'preference_centers.change']),
  );
  const broken = file('broken.html', 'first line\n{% nonsense %}');
  expectRefusal(await on.run(change('--page', broken)), 'Page is not valid', 'line 2');
  expectRefusal(await on.run(change('--page', path.join(folder, 'none.html'))), '--page', 'cannot be read');
  const latin = file('latin.html', Buffer.from([0xe9]));
  expectRefusal(await on.run(change('--page', latin)), '--page', 'UTF-8');
  expectRefusal(await on.run(change('--page', file('large.html', 'x'.repeat(1_048_577)))), '262,144');
  expectRefusal(await on.run(create('from-files')), "'from-files'");
  expectRefusal(await on.run(create('two words')), 'Name is not valid');
});

describe('revoke', () => {
  test('by user revokes all earlier links of the user in all centers; later links open', async () => {
    const [adas, bobs] = [await scene.urlOf(center, 'ada'), await scene.urlOf(center, 'bob')];
    const revoked = await on.json('preference-centers revoke --workspace shop --external-id ada');
    expect(revoked).toEqual({ workspace: 'shop', external_id: 'ada', links_revoked_at: expect.any(String) });
    expect([await status(adas), await status(bobs)]).toEqual([410, 200]);
    expect(await status(await scene.urlOf(center, 'ada'))).toBe(200);
  });

  test('by center revokes all earlier links to the center for all users; later links open', async () => {
    const urls = [await scene.urlOf(center, 'ada'), await scene.urlOf(center, 'bob')];
    const revoked = await on.json(`preference-centers revoke --workspace shop --center ${center}`);
    for (const url of urls) expect(await status(url)).toBe(410);
    expect(await on.json(`preference-centers show ${center} --workspace shop`)).toMatchObject({
      links_revoked_at: revoked.links_revoked_at,
    });
    expect(await status(await scene.urlOf(center, 'ada'))).toBe(200);
  });

  test('requires either --center or --external-id, and rejects unknown values', async () => {
    expectRefusal(await on.run('preference-centers revoke --workspace shop'), '--center', '--external-id');
    expectRefusal(
      await on.run(`preference-centers revoke --workspace shop --center ${center} --external-id ada`),
      '--center',
    );
    expectRefusal(
      await on.run('preference-centers revoke --workspace shop --external-id nobody'),
      "'nobody'",
    );
    const id = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';
    expectRefusal(await on.run(`preference-centers revoke --workspace shop --center ${id}`), id);
  });
});
