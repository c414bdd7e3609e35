import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { findApiKeys, hashApiKey } from '../../src/store/credentials.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { blockDummyUsers } from '../../workers/upkeep/upkeep.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';

/** Maximum number of distinct event names, and of distinct products, of a user. */
const LIMIT = 20_000;

const log = createLog('test', 'silent');
const time = '2026-01-31T12:00:00.000Z';

let database: Database;
let shop: TestWorkspace;
beforeAll(async () => {
  database = openDatabase((await createDatabase()).url, 3);
  shop = await createWorkspace(database.pool, 'shop');
});
afterAll(() => database.stop());

const base = (identifier: Identifier) => ({ id: uuidv7(), index: 0, create: true, identifier });

function event(user: Identifier, name: string): AcceptedObject {
  return { kind: 'events', ...base(user), name, time };
}

function purchase(user: Identifier, product_id: string, currency: string): AcceptedObject {
  return { kind: 'purchases', ...base(user), product_id, currency, price: 1, quantity: 1, time };
}

/** Applies objects in batches of 5,000. */
async function apply(objects: AcceptedObject[], { id }: TestWorkspace = shop): Promise<void> {
  for (let start = 0; start < objects.length; start += 5000) {
    const part = objects.slice(start, start + 5000);
    const request = { request_id: 'request', workspace_id: id, accepted_at: time, count: part.length };
    const envelope = { requests: [request], objects: part };
    const result = await applyBatch(database.pool, [{ id: uuidv7(), lane: 0, envelope }]);
    expect(result).toMatchObject({ kind: 'applied', deadLetters: [] });
  }
}

/** Creates objects, each with a different text. */
function many(count: number, toObject: (text: string) => AcceptedObject): AcceptedObject[] {
  return Array.from({ length: count }, (_, number) => toObject(`text ${number}`));
}

async function rows(statement: string, values: unknown[] = []) {
  return (await database.pool.query(statement, values)).rows;
}

/** Returns the blocking reasons by external id, after checking that web and Postgres agree. */
async function blockedIn({ id, key }: TestWorkspace): Promise<Record<string, string>> {
  const stored = await rows(
    'select external_id, reason from blocked_external_ids where workspace_id = $1 and unblocked_at is null',
    [id],
  );
  const [storedKey] = await findApiKeys(database.pool, [hashApiKey(key)]);
  expect(storedKey?.blocked.toSorted()).toEqual(stored.map(({ external_id }) => external_id).toSorted());
  return Object.fromEntries(stored.map(({ external_id, reason }) => [external_id, reason]));
}

describe('blocking a dummy user', () => {
  test('a user with more than 20,000 distinct event names is blocked, regardless of their counts', async () => {
    const user = { external_id: 'eventful' };
    await apply(many(LIMIT, (name) => event(user, name)));
    await apply([event(user, 'text 0'), event(user, 'text 1')]);
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).toEqual({});

    await apply([event(user, 'one more')]);
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).toEqual({ eventful: 'more than 20000 distinct event names' });
  });

  test('a user with more than 20,000 distinct products is blocked, regardless of currencies', async () => {
    const user = { external_id: 'buyer' };
    await apply(many(LIMIT, (product) => purchase(user, product, 'EUR')));
    await apply(many(5000, (product) => purchase(user, product, 'USD')));
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).not.toHaveProperty('buyer');

    await apply([purchase(user, 'one more', 'EUR')]);
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).toMatchObject({ buyer: 'more than 20000 distinct products' });
  });

  test('the stored events of a blocked user are kept', async () => {
    const [stored] = await rows(
      `select count(*) as events from events
       join profiles on profiles.workspace_id = events.workspace_id and profiles.id = events.profile_id
       where profiles.external_id = 'eventful'`,
    );
    expect(stored).toEqual({ events: LIMIT + 3 });
  });

  test('an event that was accepted before the user was blocked is applied', async () => {
    await apply([event({ external_id: 'eventful' }, 'late')]);
    expect(await rows("select from event_summaries where name = 'late'")).toHaveLength(1);
  });
});

describe('the search for dummy users', () => {
  test('changes no row when it is repeated or runs in several workers at once', async () => {
    const all = () => rows('select * from blocked_external_ids order by external_id');
    const before = await all();
    await Promise.all([1, 2, 3].map(() => blockDummyUsers(database.pool, log)));
    expect(await all()).toEqual(before);
  });

  test('does not block a user again that an operator has unblocked', async () => {
    await rows("update blocked_external_ids set unblocked_at = now() where external_id = 'eventful'");
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).not.toHaveProperty('eventful');
  });

  test('ignores a profile without an external id', async () => {
    const blockedBefore = await blockedIn(shop);
    await makeCrowded(shop, null);
    await blockDummyUsers(database.pool, log);
    expect(await blockedIn(shop)).toEqual(blockedBefore);
  });

  test('names both rules that a user has broken', async () => {
    const id = await makeCrowded(shop, 'both');
    await rows(
      `insert into purchase_summaries
       select $1, $2, 'product ' || number, 'EUR', now(), now(), 1, 1, now() from generate_series(1, $3) as number`,
      [shop.id, id, LIMIT + 1],
    );
    await blockDummyUsers(database.pool, log);
    expect((await blockedIn(shop)).both).toBe('more than 20000 distinct event names and products');
  });

  test('blocks at most 10,000 external ids per workspace and continues with other workspaces', async () => {
    const full = await createWorkspace(database.pool, 'full');
    const other = await createWorkspace(database.pool, 'other');
    await rows(
      "insert into blocked_external_ids select $1, 'user ' || number, 'r' from generate_series(1, 9999) as number",
      [full.id],
    );
    await rows("insert into blocked_external_ids values ($1, 'free', 'r', now(), now())", [full.id]);
    for (const name of ['a', 'b']) await makeCrowded(full, name);
    await makeCrowded(other, 'c');
    await blockDummyUsers(database.pool, log);
    const blocked = await blockedIn(full);
    expect(Object.keys(blocked)).toHaveLength(10_000);
    expect(blocked).toHaveProperty('a');
    expect(blocked).not.toHaveProperty('b');
    expect(await blockedIn(other)).toHaveProperty('c');
  });

  test.skipIf(isAboutOnePostgres('the nodes count for themselves how they were read'))(
    'reads only the sample indexes of the summaries',
    async () => {
      const single = openDatabase((await createDatabase()).url, 1);
      const scans = async () => {
        await single.pool.query('select pg_stat_force_next_flush()');
        const { rows: counted } = await single.pool.query(
          `select
           (select sum(idx_scan) from pg_stat_user_indexes where indexrelname like '%_summaries_sample') as samples,
           sum(seq_scan) as tables, sum(idx_scan) as indexes
         from pg_stat_user_tables where relname like '%_summaries'`,
        );
        return {
          samples: Number(counted[0].samples),
          all: Number(counted[0].tables) + Number(counted[0].indexes),
        };
      };
      await single.pool.query(
        `insert into event_summaries
       select gen_random_uuid(), gen_random_uuid(), 'event', now(), now(), 1, now() from generate_series(1, 20000)`,
      );
      await single.pool.query(
        `insert into purchase_summaries
       select gen_random_uuid(), gen_random_uuid(), 'book', 'EUR', now(), now(), 1, 1, now() from generate_series(1, 20000)`,
      );
      await single.pool.query('vacuum analyze event_summaries, purchase_summaries');
      const before = await scans();
      await blockDummyUsers(single.pool, log);
      const after = await scans();
      await single.stop();
      expect(after).toEqual({ samples: before.samples + 2, all: before.all + 2 });
    },
  );
});

/** Creates a profile with one event name too many, bypassing the lanes. @returns its id */
async function makeCrowded({ id: workspaceId }: TestWorkspace, externalId: string | null): Promise<string> {
  const id = uuidv7();
  await rows(
    'insert into profiles (workspace_id, id, external_id, created_at, updated_at) values ($1, $2, $3, now(), now())',
    [workspaceId, id, externalId],
  );
  await rows(
    `insert into event_summaries
     select $1, $2, 'event ' || number, now(), now(), 1, now() from generate_series(1, $3) as number`,
    [workspaceId, id, LIMIT + 1],
  );
  return id;
}
