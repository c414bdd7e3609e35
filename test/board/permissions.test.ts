import { createRequire } from 'node:module';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commit, createInstallation, failedEvent, type Installation, read } from './installation.ts';
import { createPeople, DEFAULT_COMPANY, statusOfQueues, type Visitor } from './people.ts';

let installation: Installation;
let people: ReturnType<typeof createPeople>;
beforeAll(async () => {
  installation = await createInstallation('postgres');
  people = createPeople(installation, await installation.startBoard());
});
afterAll(() => installation.stop());

const arrive: typeof people.arrive = (...given) => people.arrive(...given);

/** API routes of Bull Board. */
const { appRoutes } = createRequire(import.meta.url)('@bull-board/api/dist/routes.js') as {
  appRoutes: { api: { method: string; route: string | string[] }[] };
};

const act = async (companyPermissions: string[]) => {
  const { id: accountId, visitor } = await arrive(companyPermissions);
  const workspace = uuidv7();
  await installation.database.pool.query(
    'insert into workspaces (id, name, company_id) values ($1::uuid, $1::text, $2)',
    [workspace, DEFAULT_COMPANY],
  );
  const [id] = (await commit(installation.database, failedEvent({ workspaceId: workspace }))) as [string];
  expect(await statusOfQueues(visitor)).toBe(200);
  const replay = async () =>
    (await visitor.send('POST', `/dead-letters/${id}`, { body: new URLSearchParams({ action: 'replay' }) }))
      .status;
  return { accountId, replay, id };
};

test.each([[[]], [['add_remove_app_groups']]])(
  'an account with the company permissions %j can view the queues and replay nothing',
  async (given) => {
    const { replay, id } = await act(given);
    expect(await replay()).toBe(403);
    expect((await read(installation.database, id)).state).toBe('waiting');
  },
);

test.each([[['admin']], [['manage_company_settings']]])(
  'an account with the company permission %j can do everything',
  async (given) => {
    const { replay, id } = await act(given);
    expect(await replay()).toBe(303);
    expect((await read(installation.database, id)).state).toBe('replaying');
  },
);

test('changed permissions apply from the next request', async () => {
  const { accountId, replay, id } = await act(['admin']);
  await installation.database.pool.query("update accounts set company_permissions = '{}' where id = $1", [
    accountId,
  ]);
  expect(await replay()).toBe(403);
  expect((await read(installation.database, id)).state).toBe('waiting');
});

test('every changing request to Bull Board is rejected for every user', async () => {
  const { visitor } = await arrive();
  const { visitor: boss } = await arrive(['admin']);
  const changing = appRoutes.api.filter(({ method }) => method !== 'get');
  expect(changing.length).toBeGreaterThan(15);
  for (const queue of ['dead-letters', 'lane-0']) {
    for (const { method, route } of changing) {
      const path = `/queues${[route].flat()[0]!.replace(':queueName', queue).replace(/:\w+/g, 'failed')}`;
      for (const who of [visitor, boss]) {
        const answer = await who.send(method.toUpperCase(), path, {
          body: '{}',
          headers: { 'content-type': 'application/json' },
        });
        expect([method, path, answer.status, await answer.json()]).toEqual([
          ...[method, path, 403],
          { message: 'The queues are read-only.' },
        ]);
      }
    }
  }
  // The same applies to methods without a route.
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
    expect((await boss.send(method, '/queues/api/queues/dead-letters/x/retry')).status).toBe(403);
});

test('the reading routes of Bull Board are exactly these', () => {
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

test('Bull Board shows every queue as read-only', async () => {
  const queues = async (visitor: Visitor) =>
    ((await (await visitor.get('/queues/api/queues')).json()) as { queues: { readOnlyMode: boolean }[] })
      .queues;
  for (const { visitor } of [await arrive(), await arrive(['admin'])])
    expect((await queues(visitor)).every(({ readOnlyMode }) => readOnlyMode)).toBe(true);
});
