import { expect, test } from 'vitest';
import { createScene, pageWith } from './scene.ts';

test('a form while the queue is away is 503 with Retry-After and has no effect; it works later', async () => {
  const scene = await createScene('redis', { QUEUE_TIMEOUT_MS: '500' });
  await scene.addUser('ada', 'ada@example.com');
  const url = await scene.urlOf(await scene.addCenter(pageWith(scene.groups.news)), 'ada');
  const { redis } = scene.fleet;
  process.kill(redis!.pid, 'SIGSTOP');
  try {
    const answer = await scene.submit(url, {});
    expect(answer.status).toBe(503);
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await answer.text()).toContain('nothing has been changed');
  } finally {
    process.kill(redis!.pid, 'SIGCONT');
  }
  expect((await scene.submit(url, {})).status).toBe(200);
  await scene.stop();
});

test('while Postgres is away a page is 503 with Retry-After within two seconds', async () => {
  const scene = await createScene('redis');
  await scene.addUser('ada', 'ada@example.com');
  const url = await scene.urlOf(await scene.addCenter(pageWith(scene.groups.news)), 'ada');
  const tables = await scene.pool.connect();
  await tables.query('begin');
  // Readers wait for the lock, as for a Postgres that hangs.
  await tables.query('lock table preference_centers, profiles in access exclusive mode');
  const started = performance.now();
  for (const method of ['GET', 'POST']) {
    const answer = await fetch(url, { method, ...(method === 'POST' && { body: new URLSearchParams() }) });
    expect({ method, status: answer.status }).toEqual({ method, status: 503 });
    expect(answer.headers.get('retry-after')).toBe('2');
  }
  const list = await scene.api('GET', '/preference_center/v1/list');
  expect(list.status).toBe(503);
  expect(performance.now() - started).toBeLessThan(8000);
  await tables.query('rollback');
  tables.release();
  expect((await fetch(url)).status).toBe(200);
  await scene.stop();
});
