import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { customAttributesGet } from '../../src/operations/custom_attributes.get.ts';
import { eventsGet } from '../../src/operations/events.get.ts';
import { campaignsList, canvasList, feedList } from '../../src/operations/messaging-lists.ts';
import type { DirectOperation } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { MAX_NAMES } from '../../src/store/attribute-names.ts';
import { runBatch } from '../../workers/batch/run-batch.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { deliver } from '../workers/batch.ts';
import { callerOf } from './caller.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

async function runQuery(operation: DirectOperation, workspace: string, query: Record<string, string> = {}) {
  const resources = { database: store.database } as Parameters<DirectOperation['handle']>[2];
  return operation.handle(callerOf(workspace), { body: {}, query, params: {} }, resources);
}

const freshWorkspace = async () => (await createWorkspace(store.database.pool, newId())).id;

const planned = (workspace: string, attributes: Record<string, Json>[]): AcceptedObject[] =>
  usersTrack('service_id').plan(callerOf(workspace), { attributes }).objects;

/** Applies attribute objects as a worker does. */
async function apply(workspace: string, attributes: Record<string, Json>[]): Promise<void> {
  const delivery = deliver({ id: workspace }, planned(workspace, attributes));
  const result = await runBatch(store.database.pool, [delivery]);
  expect(result).toMatchObject({ kind: 'applied', deadLetters: [] });
}

interface Listed {
  attributes: { name: string; data_type: string }[];
  events: { name: string }[];
}

/** Returns every page that the `Link` headers lead to. */
async function pages(operation: DirectOperation, workspace: string): Promise<Listed[]> {
  const results: Listed[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined; ) {
    const reply = await runQuery(operation, workspace, cursor === '' ? {} : { cursor });
    results.push(reply.body as unknown as Listed);
    const link = reply.headers?.Link;
    cursor = link && /^<\/[a-z_]+\?cursor=([\w-]+)>; rel="next"$/.exec(link)![1]!;
  }
  return results;
}

const typesOf = async (workspace: string) => {
  const all = (await pages(customAttributesGet(), workspace)).flatMap(({ attributes }) => attributes);
  return Object.fromEntries(all.map(({ name, data_type }) => [name, data_type]));
};

// "The attributes are returned in groups of 50, sorted alphabetically", `attributes` with `array_length`, `data_type`,
// `description`, `name`, `status` and `tag_names`: the public page of GET /custom_attributes.
describe('GET /custom_attributes', () => {
  test('lists each attribute with the types that were seen', async () => {
    const workspace = await freshWorkspace();
    const attributes = [
      { external_id: 'ada', first_name: 'Ada', plan: 'pro', visits: 7, vip: true, since: '2026-01-31' },
      { external_id: 'ada', tags: ['a'], car: { brand: 'x' }, pets: [{ name: 'y' }], gone: null },
      { external_id: 'ada', visits: 'many', points: { inc: 2 }, colors: { add: ['red'] } },
      { external_id: 'ada', homes: { $add: [{ city: 'Rome' }] } },
    ];
    await apply(workspace, attributes);
    expect(await typesOf(workspace)).toEqual({
      ...{ plan: 'String', visits: 'String, Number', vip: 'Boolean', since: 'Date', tags: 'Array' },
      ...{ car: 'Object', pets: 'Object Array', points: 'Number', colors: 'Array', homes: 'Object Array' },
    });
    const [page] = await pages(customAttributesGet(), workspace);
    expect(page).toMatchObject({
      attributes: [
        {
          ...{ name: 'car', data_type: 'Object', description: null, array_length: null },
          ...{ status: 'Active', tag_names: [] },
        },
        ...Array(9).fill({}),
      ],
      message: 'success',
    });
    expect(await typesOf(await freshWorkspace())).toEqual({});
  });

  test('has 50 attributes to a page and names the next page in Link', async () => {
    const workspace = await freshWorkspace();
    const names = Array.from({ length: 101 }, (_, n) => `a ${String(n).padStart(3, '0')}`);
    const attributes = names.map((name) => ({ external_id: 'ada', [name]: 1 }));
    for (let start = 0; start < 101; start += 75) await apply(workspace, attributes.slice(start, start + 75));
    const actual = await pages(customAttributesGet(), workspace);
    expect(actual.map(({ attributes: page }) => page.length)).toEqual([50, 50, 1]);
    expect(actual.flatMap((page) => page.attributes.map(({ name }) => name))).toEqual(names);
  });

  test('rejects a cursor of another list with "Invalid cursor"', async () => {
    const other = Buffer.from('/events a').toString('base64url');
    for (const cursor of [
      other,
      '',
      'c2tpcDow',
      '%',
      Buffer.from('/custom_attributes a\0').toString('base64url'),
    ])
      await expect(runQuery(customAttributesGet(), await freshWorkspace(), { cursor })).rejects.toMatchObject(
        {
          status: 400,
          message: 'Invalid cursor',
        },
      );
  });

  test('writes a name once per process, also when new names come with it', async () => {
    const workspace = await freshWorkspace();
    await apply(workspace, [{ external_id: 'ada', good: 1 }]);
    await store.database.pool.query('delete from custom_attribute_names where workspace_id = $1', [
      workspace,
    ]);
    await apply(workspace, [{ external_id: 'ada', good: 2, better: true }]);
    expect(await typesOf(workspace)).toEqual({ better: 'Boolean' });
  });

  test('records no attribute of an object that is not applied', async () => {
    const workspace = await freshWorkspace();
    const unknown = [{ subscription_group_id: newId(), subscription_state: 'subscribed' }];
    const objects = planned(workspace, [{ external_id: 'ada', good: 1 }]);
    const refused = { ...objects[0]!, id: newId(), set: { bad: 1 }, subscription_groups: unknown };
    const delivery = deliver({ id: workspace }, [refused as AcceptedObject, ...objects]);
    expect(await runBatch(store.database.pool, [delivery])).toMatchObject({ deadLetters: [refused.id] });
    expect(await typesOf(workspace)).toEqual({ good: 'Number' });
  });

  test('records no further names once a workspace has 10,000', async () => {
    const workspace = await freshWorkspace();
    await store.database.pool.query(
      `insert into custom_attribute_names (workspace_id, name, types, first_seen_at)
       select $1, 'name ' || n, 1, now() from generate_series(1, $2::integer) as n`,
      [workspace, MAX_NAMES - 1],
    );
    await apply(workspace, [{ external_id: 'ada', one: 1, two: 2 }]);
    await apply(workspace, [{ external_id: 'ada', three: 3 }]);
    const { rows } = await store.database.pool.query(
      "select name from custom_attribute_names where workspace_id = $1 and name not like 'name %'",
      [workspace],
    );
    expect(rows).toEqual([{ name: 'one' }]);
  });
});

// "The events are returned in groups of 50, sorted alphabetically": the public page of GET /events.
test('GET /events lists the state of each event, 50 to a page, with the next page in Link', async () => {
  const workspace = await freshWorkspace();
  const names = Array.from({ length: 60 }, (_, n) => `event ${String(n).padStart(2, '0')}`);
  const events = names.map((name) => ({ external_id: 'ada', name, time: '2026-01-01T00:00:00Z' }));
  await store.track({ events }, workspace);
  const matches = await pages(eventsGet(), workspace);
  expect(matches.map((page) => page.events.length)).toEqual([50, 10]);
  expect(matches.flatMap((page) => page.events.map(({ name }) => name))).toEqual(names);
  expect(matches[0]!.events[0]).toEqual({
    ...{ name: 'event 00', description: null, included_in_analytics_report: false },
    ...{ status: 'Active', tag_names: [] },
  });
});

test('the lists of campaigns, canvases and cards are empty and succeed', async () => {
  for (const [operation, member] of [
    [campaignsList(), 'campaigns'],
    [canvasList(), 'canvases'],
    [feedList(), 'cards'],
  ] as const)
    expect(await runQuery(operation, store.workspaceId)).toEqual({
      status: 200,
      body: { message: 'success', [member]: [] },
    });
});
