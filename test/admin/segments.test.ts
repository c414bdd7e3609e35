import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { createDatabase, temporaryFolder } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  await makeWorkspaces(url, 'shop', 'school');
});

const germans = '{"attribute":"country","equals":"DE"}';
const create = (name: string, definition: string, workspace = 'shop') => [
  'segments',
  'create',
  '--workspace',
  workspace,
  '--name',
  name,
  '--definition',
  definition,
];

describe('penstock segments', () => {
  test('creates, changes, lists and archives a segment', async () => {
    const made = await on.json([...create('Germans', germans), '--purpose', 'letters']);
    expect(made).toEqual({
      segment_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      ...{ workspace: 'shop', name: 'Germans', purpose: 'letters', definition: JSON.parse(germans) },
      ...{ created_at: expect.any(String), updated_at: expect.any(String), archived_at: null },
    });
    const id = made.segment_id as string;
    const changed = await on.json(['segments', 'update', id, '--definition', '{"all":[]}', '--name', 'All']);
    expect(changed).toMatchObject({
      segment_id: id,
      name: 'All',
      definition: { all: [] },
      purpose: 'letters',
    });
    expect((await on.json('segments list --workspace shop')).segments).toEqual([changed]);
    expect((await on.run('segments list --workspace shop')).stdout).toContain('everyone');
    expect(await on.json(['segments', 'archive', id])).toMatchObject({ archived_at: expect.any(String) });
    expectRefusal(await on.run(['segments', 'update', id, '--name', 'Again']), id);
  });

  test('rejects a name that is already used in the workspace', async () => {
    await on.json(create('Twice', germans));
    expectRefusal(await on.run(create('Twice', germans)), "'Twice'");
    expect(await on.json(create('Twice', germans, 'school'))).toMatchObject({ workspace: 'school' });
  });

  test('reads a filter from a file, and rejects an invalid filter with position and rule', async () => {
    const file = path.join(temporaryFolder('segments-'), 'filter.json');
    writeFileSync(file, germans);
    expect(await on.json(create('From a file', `@${file}`))).toMatchObject({
      definition: JSON.parse(germans),
    });
    expectRefusal(
      await on.run(create('Wrong', '{"all":[{"event":""}]}')),
      'definition.all[0].event is not valid',
    );
    expectRefusal(await on.run(create('Wrong', '{')), '--definition cannot be read as JSON');
    expectRefusal(await on.run(create('Wrong', '@/none.json')), '/none.json');
  });

  test('preview counts the users of an unsaved filter and shows a sample', async () => {
    const requested = ['segments', 'preview', '--workspace', 'shop', '--definition', germans];
    expect(await on.json(requested)).toEqual({
      ...{ filter: 'attribute country equals "DE"', users: 0, matched: 0, sample: [] },
    });
    expectRefusal(await on.run('segments preview --workspace shop'), 'set either --segment or --definition');
  });
});

describe('penstock segments export', () => {
  test('starts an export and prints its link, and refuses an unknown field', async () => {
    await on.json(create('Exported', germans));
    const command = 'segments export --workspace shop --segment Exported';
    expectRefusal(
      await on.run(`${command} --fields email,shoe_size`),
      'unknown field: shoe_size',
      'external_id',
    );
    const started = await on.json(command);
    expect(started).toEqual({
      ...{ export_id: expect.any(String), segment: 'Exported', object_prefix: expect.any(String) },
      url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:3000\/exports\/[\w-]+$/),
    });
    const { exports } = await on.json('segments exports --workspace shop');
    expect(exports[0]).toMatchObject({ export_id: started.export_id, state: 'open', callback: null });
    expectRefusal(await on.run(command), "an export of 'Exported' is in progress");
  });
});
