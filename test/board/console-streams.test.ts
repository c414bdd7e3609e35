import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Console, openConsole, page, post } from './console-scene.ts';

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
  const told = await scene.query(
    'select action, detail from audit where subject_id = $1 order by id',
    scene.stream,
  );
  expect(told).toEqual([
    { action: 'streams.pause', detail: { name: 'crm' } },
    { action: 'streams.resume', detail: { name: 'crm' } },
  ]);
});
