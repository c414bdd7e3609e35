import { createRequire } from 'node:module';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commit, createInstallation, failedEvent, type Installation, read } from './installation.ts';
import { createPeople, looks, type Visitor } from './people.ts';

let installation: Installation;
let people: ReturnType<typeof createPeople>;
beforeAll(async () => {
  installation = await createInstallation('postgres');
  people = createPeople(installation, await installation.startBoard());
});
afterAll(() => installation.stop());

const arrive: typeof people.arrive = (...given) => people.arrive(...given);

/** What Bull Board's own page can ask for. */
const { appRoutes } = createRequire(import.meta.url)('@bull-board/api/dist/routes.js') as {
  appRoutes: { api: { method: string; route: string | string[] }[] };
};

const retry = async (companyPermissions: string[]) => {
  const { visitor } = await arrive(companyPermissions);
  const [id] = (await commit(installation.database, failedEvent())) as [string];
  expect(await looks(visitor)).toBe(200);
  return { answer: await visitor.put(`/api/queues/dead-letters/${id}/retry`), id };
};

test.each([[[]], [['add_remove_app_groups']]])(
  'an account with the company permissions %j looks, and retries nothing',
  async (given) => {
    const { answer, id } = await retry(given);
    expect([answer.status, await answer.json()]).toEqual([
      403,
      { message: 'Your account may look, and change nothing.' },
    ]);
    expect((await read(installation.database, id)).state).toBe('waiting');
  },
);

test.each([[['admin']], [['manage_company_settings']]])(
  'an account with %j may do everything',
  async (given) => {
    // It is not on the dashboard yet, but the request is let through to it.
    expect((await retry(given)).answer.status).not.toBe(403);
  },
);

test('what an account may do changes with its permissions, from one request to the next', async () => {
  const { id, visitor } = await arrive(['admin']);
  await installation.database.pool.query("update accounts set company_permissions = '{}' where id = $1", [
    id,
  ]);
  expect((await visitor.put('/api/queues/dead-letters/some/retry')).status).toBe(403);
});

test('of whoever may only look, every request of the dashboard that could change something is refused', async () => {
  const { visitor } = await arrive();
  const { visitor: boss } = await arrive(['admin']);
  const changing = appRoutes.api.filter(({ method }) => method !== 'get');
  expect(changing.length).toBeGreaterThan(15);
  for (const queue of ['dead-letters', 'lane-0']) {
    for (const { method, route } of changing) {
      const path = [route].flat()[0]!.replace(':queueName', queue).replace(/:\w+/g, 'failed');
      const send = (who: typeof visitor) =>
        who.send(method.toUpperCase(), path, {
          body: '{}',
          headers: { 'content-type': 'application/json' },
        });
      const answer = await send(visitor);
      expect([method, path, answer.status, await answer.json()]).toEqual([
        method,
        path,
        403,
        { message: 'Your account may look, and change nothing.' },
      ]);
      // It is a request of the dashboard: to whoever may, it is not an unknown one.
      expect([path, (await send(boss)).status]).not.toEqual([path, 401]);
    }
  }
  // Neither by a method that no route has.
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
    expect((await visitor.send(method, '/api/queues/dead-letters/x/retry')).status).toBe(403);
});

test('what whoever may only look can ask for is these pages, and none of them changes anything', () => {
  const looking = appRoutes.api.filter(({ method }) => method === 'get').flatMap(({ route }) => route);
  expect(looking.sort()).toEqual([
    '/api/job-schedulers',
    '/api/queues',
    '/api/queues/:queueName/:jobId',
    '/api/queues/:queueName/:jobId/flow',
    '/api/queues/:queueName/:jobId/logs',
    '/api/queues/:queueName/default-job-options',
    '/api/queues/:queueName/job-data-schema',
    '/api/queues/:queueName/metrics',
    '/api/queues/:queueName/rate-limit',
    '/api/queues/:queueName/workers',
    '/api/redis/stats',
  ]);
});

test('for people who may only look there is nothing to press', async () => {
  const queues = async (visitor: Visitor) =>
    ((await (await visitor.get('/api/queues')).json()) as { queues: { readOnlyMode: boolean }[] }).queues;
  expect((await queues((await arrive()).visitor)).every(({ readOnlyMode }) => readOnlyMode)).toBe(true);
  expect((await queues((await arrive(['admin'])).visitor)).every(({ readOnlyMode }) => readOnlyMode)).toBe(
    false,
  );
});
