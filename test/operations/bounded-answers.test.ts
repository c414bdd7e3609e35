import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { preferenceCenterList } from '../../src/operations/preference_center.list.ts';
import { createCenter, MAX_CENTERS } from '../../src/operations/preference-center/contents.ts';
import { MAX_EXPORT_BYTES } from '../../src/operations/users.export.ids.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { FULL } from '../workers/full-users.ts';
import { callerOf } from './caller.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

const range = (length: number) => Array.from({ length }, (_, index) => index);

describe('G8: the answer of an export is bounded', () => {
  const email = 'crowd@example.com';
  beforeAll(async () => {
    await store.database.pool.query(
      `insert into profiles (workspace_id, id, external_id, email, custom_attributes, created_at, updated_at)
       select $1, gen_random_uuid(), 'full-' || n, 'full-' || (n / 80) || '@example.com', $2, now(), now()
       from generate_series(0, 159) as n`,
      [store.workspaceId, FULL],
    );
    await store.database.pool.query(
      `insert into profiles (workspace_id, id, external_id, email, created_at, updated_at)
       select $1, gen_random_uuid(), 'crowd-' || n, $2, now(), now() from generate_series(1, 1200) as n`,
      [store.workspaceId, email],
    );
    await store.track({ events: [{ external_id: 'busy', name: 'first', time: '2026-01-01T00:00:00Z' }] });
    await store.database.pool.query(
      `insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
       select $1, profiles.id, 'event ' || n, now(), now(), 1, now()
       from profiles, generate_series(1, 10000) as n where workspace_id = $1 and external_id = 'busy'`,
      [store.workspaceId],
    );
  }, 120_000);

  test('fifty full users are returned', async () => {
    const external_ids = range(50).map((index) => `full-${index}`);
    const { body } = await store.exportIds({ external_ids });
    expect(body.users.map((user: { external_id: string }) => user.external_id)).toEqual(external_ids);
    expect(body.users[49].custom_attributes).toEqual(FULL);
  });

  test('a response above the limit is rejected, and can be read field by field', async () => {
    const all = { email_address: 'full-0@example.com' };
    expect(80 * JSON.stringify(FULL).length).toBeGreaterThan(MAX_EXPORT_BYTES);
    await expect(store.exportIds(all)).rejects.toThrow('more than 16 MB');
    const { body } = await store.exportIds({ ...all, fields_to_export: ['external_id'] });
    expect(body.users).toHaveLength(80);
  });

  test('a field with more than ten thousand elements is rejected, and the others are returned', async () => {
    const busy = { external_ids: ['busy'] };
    await expect(store.exportIds(busy)).rejects.toThrow(/custom_events of [0-9a-f]{24}$/);
    const { body } = await store.exportIds({ ...busy, fields_to_export: ['external_id', 'purchases'] });
    expect(body.users).toEqual([{ external_id: 'busy' }]);
  });

  test('at most a thousand users of one address are returned', async () => {
    const { body } = await store.exportIds({ email_address: email, fields_to_export: ['external_id'] });
    expect(body.users).toHaveLength(1000);
  });
});

test('G8: a workspace has at most a thousand preference centers, all of them in the list', async () => {
  const { database } = store;
  const { id: workspaceId } = await createWorkspace(database.pool, 'centers');
  await database.pool.query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     select $1, gen_random_uuid(), 'center ' || n, 'title', 'page', 'saved', 'active'
     from generate_series(1, $2::integer) as n`,
    [workspaceId, MAX_CENTERS - 1],
  );
  const create = (name: string) =>
    createCenter(database, {
      ...{ workspaceId, id: randomUUID(), name, now: new Date() },
      contents: { pageHtml: 'page', confirmationHtml: 'saved' },
    });
  const made = await Promise.allSettled(['one', 'two', 'three'].map(create));
  expect(made.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
  const refused = made.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
  expect(refused.reason).toMatchObject({ status: 400, message: expect.stringContaining('at most 1,000') });
  const { body } = await preferenceCenterList().handle(
    callerOf(workspaceId),
    { body: {}, query: {}, params: {} },
    { database } as never,
  );
  expect((body as { preference_centers: unknown[] }).preference_centers).toHaveLength(MAX_CENTERS);
});
