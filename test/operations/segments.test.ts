import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { DirectOperation } from '../../src/operations/operation.ts';
import { segmentsDetails } from '../../src/operations/segments.details.ts';
import { segmentsList } from '../../src/operations/segments.list.ts';
import { NIL_UUID, newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { readDefinition } from '../../src/profile/segment.ts';
import { evaluateUsers } from '../../src/store/segments.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { type Answer, callerOf } from './caller.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
let news: string;
let texts: string;
const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString();

beforeAll(async () => {
  store = await createStore();
  news = await createGroup(store.database.pool, store.workspaceId, 'email');
  texts = await createGroup(store.database.pool, store.workspaceId, 'sms');
  const did = (external_id: string, name: string, time: string) => ({ external_id, name, time });
  await store.track({
    attributes: [
      {
        ...{
          external_id: 'ada',
          email: 'Ada@Example.com',
          country: 'DE',
          phone: '+14155552671',
          dob: '1990-05-04',
        },
        ...{
          plan: 'pro',
          points: 12,
          vip: true,
          tags: ['red', 'blue'],
          joined: { $time: '2026-01-02T00:00:00Z' },
        },
        ...{ address: { city: 'Berlin', floors: 3 }, email_subscribe: 'opted_in' },
        subscription_groups: [{ subscription_group_id: texts, subscription_state: 'subscribed' }],
      },
      {
        ...{ external_id: 'bob', email: 'bob@example.com', country: 'FR', plan: 'free', points: 3, tags: [] },
        ...{ email_subscribe: 'unsubscribed', push_subscribe: 'opted_in' },
        subscription_groups: [{ subscription_group_id: news, subscription_state: 'unsubscribed' }],
      },
      { external_id: 'cy', points: '12', plan: ['pro'], joined: 'long ago' },
      {
        external_id: 'di',
        country: 'DE',
        subscription_groups: [{ subscription_group_id: news, subscription_state: 'subscribed' }],
      },
    ],
    events: [
      did('ada', 'read', daysAgo(40)),
      did('ada', 'read', daysAgo(2)),
      did('ada', 'read', daysAgo(1)),
      did('bob', 'read', daysAgo(90)),
      did('cy', 'wrote', daysAgo(1)),
    ],
    purchases: [
      { external_id: 'ada', product_id: 'book', currency: 'EUR', price: 1, time: daysAgo(3) },
      { external_id: 'ada', product_id: 'book', currency: 'USD', price: 1, time: daysAgo(30) },
      { external_id: 'di', product_id: 'pen', currency: 'EUR', price: 1, time: daysAgo(3) },
    ],
  } as never);
});
afterAll(() => store?.stop());

/** Returns the external ids that match the filter, read two users at a time. */
async function meant(definition: Json, workspaceId = store.workspaceId): Promise<string[]> {
  const ids: string[] = [];
  let matched = 0;
  for (let after: string | undefined = NIL_UUID; after !== undefined; ) {
    const part = { workspaceId, definition: readDefinition(definition), after, limit: 2, sample: 10 };
    const looked = await evaluateUsers(store.database.pool, part);
    ids.push(...looked.sample);
    matched += looked.matched;
    after = looked.last;
  }
  expect(matched).toBe(ids.length);
  const { rows } = await store.database.pool.query(
    'select external_id from profiles where id = any($1) order by 1',
    [ids],
  );
  return rows.map(({ external_id }) => external_id);
}

const everyone = ['ada', 'bob', 'cy', 'di'];

describe('a filter matches the users that it describes', () => {
  test.each<[Json, string[]]>([
    [{ all: [] }, everyone],
    [{ any: [] }, []],
    [{ none: [] }, everyone],
    [{ attribute: 'country', equals: 'DE' }, ['ada', 'di']],
    [{ none: [{ attribute: 'country', equals: 'DE' }] }, ['bob', 'cy']],
    [{ attribute: 'country', in: ['FR', 'DE'] }, ['ada', 'bob', 'di']],
    [{ attribute: 'country', exists: false }, ['cy']],
    [{ attribute: 'email', equals: 'ADA@example.com' }, ['ada']],
    [{ attribute: 'dob', before: '2000-01-01' }, ['ada']],
    [{ attribute: 'country', more_than: 1 }, []],
    [{ attribute: 'created_at', in_last_days: 1 }, everyone],
    [{ attribute: 'created_at', before: '2020-01-01' }, []],
    [{ custom_attribute: 'plan', equals: 'pro' }, ['ada']],
    [{ none: [{ custom_attribute: 'plan', equals: 'pro' }] }, ['bob', 'cy', 'di']],
    [{ custom_attribute: 'plan', in: ['pro', 'free', 7] }, ['ada', 'bob']],
    [{ custom_attribute: 'plan', contains: 'pro' }, ['cy']],
    [{ custom_attribute: 'tags', contains: 'red' }, ['ada']],
    [{ custom_attribute: 'vip', equals: true }, ['ada']],
    [{ custom_attribute: 'points', more_than: 2 }, ['ada', 'bob']],
    [{ custom_attribute: 'points', more_than: 2, less_than: 10 }, ['bob']],
    [{ custom_attribute: 'points', equals: 12 }, ['ada']],
    [{ custom_attribute: 'points', equals: '12' }, ['cy']],
    [{ custom_attribute: 'joined', after: '2026-01-01', before: '2026-01-03' }, ['ada']],
    [{ custom_attribute: ['address', 'city'], equals: 'Berlin' }, ['ada']],
    [{ custom_attribute: ['address', 'floors'], less_than: 4 }, ['ada']],
    [{ custom_attribute: "plan' or true --", exists: true }, []],
    [{ email_subscription: 'opted_in' }, ['ada']],
    [{ email_subscription: 'subscribed' }, ['cy', 'di']],
    [{ email_subscription: 'unsubscribed' }, ['bob']],
    [{ push_subscription: 'opted_in' }, ['bob']],
    [{ event: 'read' }, ['ada', 'bob']],
    [{ event: 'read', count_at_least: 2 }, ['ada']],
    [{ event: 'read', count_at_most: 1 }, ['bob', 'cy', 'di']],
    [{ event: 'read', count_at_least: 1, count_at_most: 1 }, ['bob']],
    [{ event: 'read', count_at_most: 0 }, ['cy', 'di']],
    [{ event: 'read', last_in_days: 7 }, ['ada']],
    [{ none: [{ event: 'read', last_in_days: 7 }] }, ['bob', 'cy', 'di']],
    [{ event: 'read', first_before: daysAgo(60) }, ['bob']],
    [{ event: 'read', first_after: daysAgo(60), last_after: daysAgo(7) }, ['ada']],
    [{ event: 'read', last_before: daysAgo(30) }, ['bob']],
    [{ event: 'read', count_at_most: 5, last_in_days: 7 }, ['ada']],
    [{ purchase: 'book' }, ['ada']],
    [{ purchase: 'book', count_at_least: 2 }, ['ada']],
    [{ purchase: 'book', count_at_least: 3 }, []],
    [{ any_purchase: true }, ['ada', 'di']],
    [{ any_purchase: true, count_at_most: 0 }, ['bob', 'cy']],
    [{ any_purchase: true, count_at_most: 1 }, ['bob', 'cy', 'di']],
    [
      {
        any: [{ event: 'wrote' }, { all: [{ attribute: 'country', equals: 'DE' }, { any_purchase: true }] }],
      },
      ['ada', 'cy', 'di'],
    ],
  ])('%j: %j', async (definition, expected) => {
    expect(await meant(definition)).toEqual(expected);
  });

  test("a group state is the address's, or the user's own if the user has no address", async () => {
    const state = (subscription_group: string, word: string) => ({ subscription_group, state: word });
    expect(await meant(state(news, 'unsubscribed'))).toEqual(['bob']);
    expect(await meant(state(news, 'subscribed'))).toEqual(['di']);
    expect(await meant(state(texts, 'subscribed'))).toEqual(['ada']);
    expect(await meant(state(newId(), 'subscribed'))).toEqual([]);
  });

  test('users and groups of other workspaces do not match', async () => {
    const other = (await createWorkspace(store.database.pool, newId())).id;
    expect(await meant({ all: [] }, other)).toEqual([]);
    await store.track({ attributes: [{ external_id: 'eve', email: 'di@example.com' }] } as never, other);
    expect(await meant({ all: [] }, other)).toEqual(['eve']);
    expect(await meant({ subscription_group: news, state: 'subscribed' }, other)).toEqual([]);
  });
});

async function runQuery(
  operation: DirectOperation,
  query: Record<string, string>,
  workspace = store.workspaceId,
) {
  const resources = { database: store.database } as Parameters<DirectOperation['handle']>[2];
  return (await operation.handle(callerOf(workspace), { body: {}, query, params: {} }, resources)) as Answer;
}

// "The segments are returned in groups of 100 sorted by time of creation (oldest to newest by default).
// Archived segments
// are not included." and `id`, `name`, `analytics_tracking_enabled`, `tags`: the public page of GET
// /segments/list.
// `description` "a human-readable description of filters", `text_description` "the segment description",
// `created_at`,
// `updated_at`, `tags`, `teams`: the public page of GET /segments/details.
describe('/segments/list and /segments/details', () => {
  const make = async (
    workspace: string,
    { name = newId() as string, archived = false } = {},
  ): Promise<string> => {
    const id = newId();
    await store.database.pool.query(
      `insert into segments (id, workspace_id, name, purpose, definition, archived_at)
       values ($1, $2, $3, 'letters', '{"attribute": "country", "equals": "DE"}', case when $4 then now() end)`,
      [id, workspace, name, archived],
    );
    return id;
  };

  test('list 100 active segments at a time, oldest first by default', async () => {
    const workspace = (await createWorkspace(store.database.pool, newId())).id;
    const ids: string[] = [];
    for (let n = 0; n < 103; n++) ids.push(await make(workspace));
    await make(workspace, { archived: true });
    const list = async (query: Record<string, string>) =>
      ((await runQuery(segmentsList(), query, workspace)).body.segments as { id: string }[]).map(
        ({ id }) => id,
      );
    expect(await list({})).toEqual(ids.slice(0, 100));
    expect(await list({ page: '1' })).toEqual(ids.slice(100));
    expect(await list({ page: '2' })).toEqual([]);
    expect(await list({ sort_direction: 'desc' })).toEqual(ids.toReversed().slice(0, 100));
  });

  test('describe a segment of their own workspace, and reject others', async () => {
    const id = await make(store.workspaceId, { name: 'Germans' });
    const { segments } = (await runQuery(segmentsList(), {})).body;
    expect(segments).toEqual([{ id, name: 'Germans', analytics_tracking_enabled: false, tags: [] }]);
    const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect((await runQuery(segmentsDetails(), { segment_id: id.toUpperCase() })).body).toEqual({
      ...{ name: 'Germans', description: 'attribute country equals "DE"', text_description: 'letters' },
      ...{ created_at: iso, updated_at: iso, tags: [], teams: [], message: 'success' },
    });
    const other = (await createWorkspace(store.database.pool, newId())).id;
    const archived = await make(store.workspaceId, { archived: true });
    for (const [requested, workspace] of [
      [id, other],
      [archived, store.workspaceId],
      [newId(), store.workspaceId],
      ['nonsense', store.workspaceId],
    ] as const)
      await expect(runQuery(segmentsDetails(), { segment_id: requested }, workspace)).rejects.toThrow(
        'Invalid segment ID',
      );
  });
});
