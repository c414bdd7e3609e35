import { afterAll, beforeAll, expect, test } from 'vitest';
import { streams } from '../../src/resources/streams.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { inWorkspace, type Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

const textOf = (text: string) => text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ');

test('a stream shows its target without secrets, its lag and its last error', async () => {
  await scene.query(
    `insert into stream_log (workspace_id, at, kinds, profile_ids, ids)
     values ($1, now() - interval '2 hours', 'e', array[$2::uuid], array[$2::uuid])`,
    ...[scene.shop, scene.stream],
  );
  const { text } = await page(scene.operator, '/streams?workspace=shop');
  expect(textOf(text)).toMatch(
    /crm https:\/\/crm\.example\.com\/in active 2 h.* 0 never failed 3 times in a row 503 Service Unavailable/,
  );
  expect(text).not.toContain('4711');
  const other = textOf((await page(scene.operator, '/streams?workspace=school')).text);
  expect(other).toContain('No streams yet');
  expect(other).toContain('Create stream');
});

test('a stream can be paused and resumed in its own workspace, with audit entries', async () => {
  const press = async (workspace: string, action: string) => {
    const answer = await post(scene.operator, `/streams/${scene.stream}`, { workspace, action });
    return answer.status;
  };
  const stateOf = async () =>
    (await scene.query('select state, failures from stream_destinations where id = $1', scene.stream))[0];
  expect(await press(scene.school, 'pause')).toBe(404);
  expect(await press(scene.shop, 'pause')).toBe(303);
  expect(await stateOf()).toEqual({ state: 'paused', failures: 0 });
  expect(await press(scene.shop, 'pause')).toBe(303);
  expect(await press(scene.shop, 'resume')).toBe(303);
  expect(await stateOf()).toMatchObject({ state: 'active' });
  const auditRows = await scene.query(
    'select action, detail from audit where subject_id = $1 order by id',
    scene.stream,
  );
  expect(auditRows).toEqual([
    { action: 'streams.pause', detail: { name: 'crm' } },
    { action: 'streams.resume', detail: { name: 'crm' } },
  ]);
});

test('deciding what a stream sends needs the rights to syncs, users and personal data', async () => {
  const path = `/streams/${scene.stream}`;
  const forms: [path: string, fields: Record<string, string>][] = [
    ['/streams', { name: 'own', url: 'https://elsewhere.example/in' }],
    [path, { action: 'test' }],
    [path, { action: 'replay-from', at: '2026-11-23T08:00:00Z' }],
    [path, { action: 'remove', confirm: 'crm' }],
  ];
  const shownTo = async (visitor: Visitor) =>
    [(await page(visitor, '/streams')).text, (await page(visitor, path)).text]
      .flatMap((text) => [...text.matchAll(/<button[^>]*>([^<]*)<\/button>/g)].map(([, name]) => name))
      .filter((name) => /Create|Test|Replay|Remove/.test(name!));
  for (const role of ['syncs', 'integrations', 'streams with addresses', 'streams with users']) {
    const appGroups = [{ workspace: scene.shop, permissions: inWorkspace[role], teams: [] }];
    const { visitor } = await scene.people.arrive([], { appGroups });
    expect([role, await shownTo(visitor)]).toEqual([role, []]);
    for (const [to, fields] of forms) {
      const { status } = await post(visitor, to, { workspace: scene.shop, ...fields });
      expect([role, fields, status]).toEqual([role, fields, 403]);
    }
    const { status } = await post(visitor, path, { workspace: scene.shop, action: 'pause' });
    expect([role, status]).toEqual([role, 303]);
  }
  const appGroups = [{ workspace: scene.shop, permissions: inWorkspace['makes streams'], teams: [] }];
  const { visitor } = await scene.people.arrive([], { appGroups });
  expect(await shownTo(visitor)).toEqual(['Create stream', 'Test', 'Replay from a time', 'Remove stream']);
  const replay = { workspace: scene.shop, action: 'replay-from', at: '2026-11-23T08:00:00Z' };
  expect((await post(visitor, path, replay)).status).toBe(303);
});

test('the form names the missing INTEGRATION_KEY and offers webhooks and Kafka, but no files', async () => {
  const { text } = await page(scene.operator, '/streams?workspace=shop');
  expect(textOf(text)).toContain('INTEGRATION_KEY is not set for the console');
  expect(textOf(text)).toContain('penstock streams create --to');
  const names = [...text.matchAll(/<(?:input|select) [^>]*name="([a-z_]+)"/g)].map(([, name]) => name);
  expect(names).toEqual(expect.arrayContaining(['url', 'kafka', 'topic', 'secret']));
  for (const name of ['to', 'format', 'region', 'endpoint', 'access_key_id'])
    expect(names).not.toContain(name);
  const create = (fields: Record<string, string>) =>
    post(scene.operator, '/streams', { workspace: scene.shop, ...fields });
  const files = await create({ name: 'files', to: 'file:///tmp' });
  expect([files.status, await files.text()]).toEqual([400, expect.stringContaining('one of --url, --kafka')]);
  const [, webhook, topics] = text.match(
    /data-part="Webhook">(.*?)<\/fieldset>[\s\S]*?data-part="Kafka">(.*?)<\/fieldset>/s,
  )!;
  expect([/name="url"/.test(webhook!), /name="topic"/.test(webhook!), /name="topic"/.test(topics!)]).toEqual([
    ...[true, false, true],
  ]);
  expect(text).not.toContain('`');
  // The fields of the other destination are ignored.
  const both = { url: 'https://crm.example.com/in', kafka: 'kafka.example.com:9092', topic: 'users' };
  const refused = await create({ ...both, name: 'both' });
  expect([refused.status, await refused.text()]).toEqual([
    400,
    expect.stringContaining('Set one destination'),
  ]);
  expect((await create({ ...both, name: 'kafka-part', part: 'Kafka' })).status).toBe(303);
  const kafka = { name: 'topic', kafka: 'kafka.example.com:9092', topic: 'users' };
  expect((await create(kafka)).status).toBe(303);
});

test('the console begins an erasure from the log without waiting and records it', async () => {
  await scene.query(
    `with erasure as (
       insert into stream_erasures (workspace_id, subject_kind, subject, up_to)
       values ($1, 'profile', gen_random_uuid()::text, 0))
     insert into stream_erasure_passes (workspace_id) values ($1)`,
    scene.shop,
  );
  const { status } = await post(scene.operator, '/streams', { workspace: scene.shop, action: 'erase' });
  expect(status).toBe(303);
  expect(await scene.query('select reached from stream_erasure_passes')).toEqual([{ reached: 0 }]);
  expect(await scene.query('select in_pass from stream_erasures')).toEqual([{ in_pass: true }]);
  const entries = await scene.query("select workspace_id::text from audit where action = 'streams.erase'");
  expect(entries).toEqual([{ workspace_id: scene.shop }]);
});

test('a replay and a removal of a removed stream are not audited', async () => {
  const context = scene.installation.resourceContext;
  const [{ id }] = (await scene.query(
    `insert into stream_destinations (workspace_id, id, name, kind, settings, position)
     values ($1, gen_random_uuid(), 'gone', 'webhook', '{"url": "https://crm.example.com/in"}', 0) returning id`,
    scene.shop,
  )) as [{ id: string }];
  const one = (await streams.find(context, id, [scene.shop]))!;
  const run = (verb: string, values = {}) =>
    streams.actions.find((action) => action.verb === verb)!.run(context, { one, values });
  await run('remove');
  await run('remove');
  await run('replay-from', { at: new Date() });
  const entries = await scene.query('select action from audit where subject_id = $1', id);
  expect(entries).toEqual([{ action: 'streams.remove' }]);
});

test('the console offers no test of a stream to files and refuses it with the command to run', async () => {
  const [{ id }] = (await scene.query(
    `insert into stream_destinations (workspace_id, id, name, kind, settings, position)
     values ($1, gen_random_uuid(), 'files', 'files', '{"to": "file:///srv/out", "format": "ndjson"}', 0) returning id`,
    scene.shop,
  )) as [{ id: string }];
  const path = `/streams/${id}?workspace=shop`;
  expect((await page(scene.operator, path)).text).not.toContain('value="test"');
  const refused = await post(scene.operator, path, { action: 'test' });
  expect([refused.status, textOf(await refused.text())]).toEqual([
    400,
    expect.stringContaining(`penstock streams test ${id}`),
  ]);
});
