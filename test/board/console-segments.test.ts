import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { countUsers } from '../../src/board/pages/segment-count.ts';
import { NIL_UUID } from '../../src/platform/ids.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import type { Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
  await scene.query(
    `insert into profiles (workspace_id, id, external_id, country, created_at, updated_at)
     select $1, uuid_v7_floor(now() - n * interval '1 s'), 'from-' || n, 'DE', now(), now() from generate_series(1, 2500) as n`,
    scene.shop,
  );
});
afterAll(() => scene.installation.stop());

const german = '{"attribute": "country", "equals": "DE"}';
const sends = async (visitor: Visitor, path: string, fields: Record<string, string>) => {
  const answer = await post(visitor, path, { workspace: scene.shop, ...fields });
  return { status: answer.status, text: await answer.text(), to: answer.headers.get('location') ?? '' };
};
const arrives = async (...permissions: string[]) =>
  (await scene.people.arrive([], { appGroups: [{ workspace: scene.shop, permissions, teams: [] }] })).visitor;
const actionsOf = async (id: string) =>
  (await scene.query('select action, detail from audit where subject_id = $1 order by id', id)).map(
    ({ action, detail }) => [action, detail],
  );

describe('a segment', () => {
  test('a segment can be counted, created, changed and archived, with audit entries', async () => {
    const counted = await sends(scene.operator, '/segments', { action: 'count', definition: german });
    expect([counted.status, counted.text.replaceAll(/<[^>]*>/g, '')]).toEqual([
      200,
      expect.stringContaining('2,500 of 2,501 users (over 99.9 %)'),
    ]);
    expect([...counted.text.matchAll(/href="\/users\//g)]).toHaveLength(10);
    expect(counted.text).not.toContain('Continue counting');
    const words = { name: 'Germans', purpose: 'A letter', definition: german };
    const { to } = await sends(scene.operator, '/segments', { action: 'create', ...words });
    const [, id] = /^\/segments\/([0-9a-f-]{36})\?/.exec(to)!;
    const path = `/segments/${id}`;
    const { text } = await page(scene.operator, path);
    for (const shown of ['Germans', 'A letter', 'attribute country equals', id!])
      expect([shown, text.includes(shown)]).toEqual([shown, true]);
    const changed = { ...words, name: 'In Germany' };
    expect((await sends(scene.operator, path, { action: 'update', ...changed })).to).toContain(
      'done=changed',
    );
    expect((await sends(scene.operator, path, { action: 'archive', confirm: 'no' })).status).toBe(400);
    expect((await sends(scene.operator, path, { action: 'archive', confirm: 'archive' })).to).toContain(
      'archived',
    );
    expect((await sends(scene.operator, path, { action: 'update', ...words })).to).toContain('as_before');
    expect((await page(scene.operator, `/segments?workspace=${scene.shop}`)).text).toContain('archived');
    expect(await actionsOf(id!)).toEqual([
      ['segments.create', { name: 'Germans' }],
      ['segments.update', { name: 'In Germany' }],
      ['segments.archive', { name: 'In Germany' }],
    ]);
  });

  test('a segment accepts a definition of the same length as on the command line', async () => {
    const values = Array.from({ length: 500 }, (_, index) => `${index}${'x'.repeat(240)}`);
    const definition = JSON.stringify({ any: [1, 2].map(() => ({ custom_attribute: 'tag', in: values })) });
    expect(definition.length).toBeGreaterThan(211_000);
    const words = { name: 'Long', purpose: '', definition };
    expect((await sends(scene.operator, '/segments', { action: 'create', ...words })).to).toContain('done=');
  });

  test('a count ends when its time is over, with the counts of all filters so far', async () => {
    const counted = await countUsers(scene.installation.database.pool, {
      ...{ workspaceId: scene.shop, bySubfilter: true, after: NIL_UUID, sample: 1, milliseconds: 0 },
      definition: {
        any: [{ attribute: 'country', equals: 'DE' }, { none: [{ attribute: 'country', equals: 'DE' }] }],
      },
    });
    expect(counted).toEqual({
      ...{ read: 100, matched: 100, sample: [expect.any(String)], after: expect.any(String) },
      parts: [100, 0],
    });
  });

  test('a count continues at the position where the previous count stopped', async () => {
    const [{ after }] = await scene.query(
      'select id as after from profiles where workspace_id = $1 order by id offset 1999 limit 1',
      scene.shop,
    );
    const { text } = await sends(scene.operator, '/segments', {
      ...{ action: 'count', definition: german, after, users: '2000', matched: '2000' },
    });
    expect(text.replaceAll(/<[^>]*>/g, '')).toContain('2,500 of 2,501 users');
  });

  test.each([
    ['{"all": [', "'definition' is not valid JSON from line 1, character 10 on."],
    ['{"all": [\n{"attribute": x}]}', "'definition' is not valid JSON: Unexpected token"],
    ['{"all": [{"event": "read", "last_in_days": 0}]}', 'definition.all[0].last_in_days is not valid'],
    ['{"all": [\n{"event" "x"}]}', "'definition' is not valid JSON from line 2, character 10 on."],
    ['{"attribute": "password", "equals": "x"}', 'definition.attribute is not valid'],
  ])(
    'the definition %s is rejected with position and rule, and stays in the form',
    async (definition, says) => {
      const { status, text } = await sends(scene.operator, '/segments', {
        action: 'create',
        name: 'N',
        definition,
      });
      const shown = text.replaceAll('&#39;', "'").replaceAll('&quot;', '"');
      expect([status, shown.includes(says), shown.includes(definition)]).toEqual([400, true, true]);
    },
  );

  test('a segment cannot have the name of another segment', async () => {
    const { status, text } = await sends(scene.operator, '/segments', {
      ...{ action: 'create', name: 'Teal', definition: german },
    });
    expect([status, text]).toEqual([400, expect.stringContaining('already has this name')]);
  });

  test('segment actions need their SCIM permissions, and counts reveal no personal data', async () => {
    const [viewer, counts, archives] = [
      await arrives('view_segments'),
      await arrives('edit_segments', 'view_user_profile'),
      await arrives('archive_segments'),
    ];
    const path = `/segments/${scene.segment}`;
    for (const visitor of [viewer, counts, archives])
      for (const route of [path, '/segments']) {
        const { status, text } = await page(visitor, route);
        expect([route, status, text.includes('Teal'), text.includes('colour')]).toEqual([
          route,
          200,
          true,
          false,
        ]);
      }
    const statusOf = async (visitor: Visitor, where: string, fields: Record<string, string>) =>
      (await sends(visitor, where, { name: 'Other', definition: german, ...fields })).status;
    for (const action of ['create', 'count'])
      expect(await statusOf(viewer, '/segments', { action })).toBe(403);
    expect(await statusOf(viewer, path, { action: 'archive', confirm: 'archive' })).toBe(403);
    expect(await statusOf(archives, path, { action: 'update' })).toBe(403);
    expect(await statusOf(counts, path, { action: 'update' })).toBe(403);
    expect(await statusOf(counts, '/segments', { action: 'count' })).toBe(200);
    const who = '{"none": [{"attribute": "email", "equals": "ada@gmail.com"}]}';
    expect(await statusOf(counts, '/segments', { action: 'count', definition: who })).toBe(403);
    expect(await statusOf(archives, path, { action: 'archive', confirm: 'archive' })).toBe(303);
    expect((await actionsOf(scene.segment)).map(([action]) => action)).toEqual(['segments.archive']);
  });
});

test('an export shows its segment, progress and error, without secrets', async () => {
  const { text } = await page(scene.operator, '/exports?workspace=shop');
  const words = text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ');
  expect(words).toMatch(
    /Teal \S+ \S+ UTC complete 12 1 3,456 .* no link not reached hooks\.example 503 of the callback Teal-1/,
  );
  expect(text).not.toContain('4711');
  const { text: none } = await page(scene.operator, '/exports?workspace=school');
  expect(none).toContain('POST /users/export/segment');
});

test('rows are counted, named and saved as a filter, and a wrong value stays at its field', async () => {
  const send = async (
    action: string,
    rows: [kind: string, name: string, operator: string, value: string][],
    more: [name: string, value: string][] = [],
  ) => {
    const body = new URLSearchParams({
      action,
      source: 'rows',
      match: 'any',
      workspace: scene.shop,
      name: 'Rows',
    });
    for (const [kind, name, operator, value] of rows)
      for (const [field, text] of Object.entries({ kind, name, operator, value }))
        body.append(`row_${field}`, text);
    for (const [field, text] of more) body.append(field, text);
    const answer = await scene.operator.send('POST', '/segments', { body, headers: { accept: 'text/html' } });
    return { status: answer.status, text: await answer.text() };
  };
  const first: [string, string, string, string] = ['attribute', 'first_name', 'equals', 'Ada'];
  const added = await send('add_row', [first]);
  expect([added.status, added.text.match(/<legend>Row/g)?.length]).toEqual([200, 2]);
  expect((await send('remove_row_0', [first])).text).not.toContain('<legend>Row');
  const second: [string, string, string, string] = ['custom_attribute', 'age', 'more_than', '7'];
  const counted = await send('count', [first, second]);
  expect(counted.text).toMatch(/(?:role="status">\d+ users? of all 2,501<[\s\S]*){2}/);
  const inGermany: [string, string, string, string] = ['attribute', 'country', 'equals', 'DE'];
  expect((await send('count', [first, inGermany])).text).toContain('2,500 users of all 2,501<');
  const [{ after }] = await scene.query(
    'select id as after from profiles where workspace_id = $1 order by id offset 1999 limit 1',
    scene.shop,
  );
  const before = { after, users: '2000', matched: '2000' };
  const continued = await send(
    'count',
    [first, inGermany],
    [...Object.entries(before), ...['7', '2000'].map((number): [string, string] => ['row_matched', number])],
  );
  expect(continued.text).toMatch(/[78] users of all 2,501<[\s\S]*2,500 users of all 2,501</);
  const wrong = await send('create', [first, ['custom_attribute', 'age', 'more_than', 'many']]);
  expect(wrong.status).toBe(400);
  expect(wrong.text).toMatch(/name="row_value" value="many"[^>]*aria-invalid="true"/);
  expect((await send('create', [first, second])).status).toBe(303);
  const [made] = await scene.query("select definition from segments where name = 'Rows'");
  expect(made).toEqual({
    definition: {
      any: [
        { attribute: 'first_name', equals: 'Ada' },
        { custom_attribute: 'age', more_than: 7 },
      ],
    },
  });
});
