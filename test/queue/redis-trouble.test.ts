import { afterAll, beforeAll, expect, test } from 'vitest';
import { QueueUnavailable } from '../../src/queue/lanes.ts';
import { createScene, people, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene('redis');
});
afterAll(() => scene.stop());

test('G1: no object is lost if Redis loses its scripts', async () => {
  const { send } = await scene.begin();
  for (let round = 0; round < 20; round++) {
    await scene.operator!.script('FLUSH');
    await Promise.all([send(2 * round, people(10)), send(2 * round + 1, people(10))]);
  }
  const contents = await scene.everything();
  expect(contents).toHaveLength(400);
  expect(new Set(contents.map(({ user, number }) => `${user} ${number}`)).size).toBe(400);
});

test.each([
  ['with its scripts', false],
  ['without its scripts', true],
])('G1: a Redis %s that is out of memory acknowledges no object', async (_, forgetful) => {
  const { send } = await scene.begin();
  await scene.operator!.config('SET', 'maxmemory', '1');
  if (forgetful) await scene.operator!.script('FLUSH');
  await expect(send(0, people(10))).rejects.toBeInstanceOf(QueueUnavailable);
  await scene.operator!.config('SET', 'maxmemory', '0');
  await send(1, people(10));
  expect(await scene.everything()).toHaveLength(10);
});

test('G1: an add is not acknowledged if one of its lanes refuses it', async () => {
  const { send } = await scene.begin();
  await scene.operator!.del('{penstock}:lane-2:wait');
  await scene.operator!.set('{penstock}:lane-2:wait', 'not a list');
  await expect(send(0, people(20))).rejects.toBeInstanceOf(QueueUnavailable);
  await scene.operator!.del('{penstock}:lane-2:wait');
  await send(1, people(20));
  expect((await scene.everything()).filter(({ number }) => number === 1)).toHaveLength(20);
});
