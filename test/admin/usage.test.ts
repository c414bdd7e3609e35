import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

let on: PenstockOn;
let database: Database;
let shop: string;
beforeAll(async () => {
  const { url } = await createDatabase();
  on = penstockOn(url);
  database = openDatabase(url, 1);
  const [first = '', school = ''] = await makeWorkspaces(url, 'shop', 'school');
  shop = first;
  await database.pool.query(
    `insert into usage (workspace_id, day, lane, attributes, events, purchases, identity, subscriptions)
     select workspace_id::uuid, day::date, lane, attributes, events, purchases, identity, 7
       from jsonb_to_recordset($1) as given (workspace_id text, day text, lane int, attributes int, events int, purchases int, identity int)`,
    [
      JSON.stringify([
        {
          workspace_id: shop,
          day: '2026-07-01',
          lane: 0,
          attributes: 1,
          events: 2,
          purchases: 3,
          identity: 1,
        },
        {
          workspace_id: shop,
          day: '2026-07-02',
          lane: 0,
          attributes: 10,
          events: 20,
          purchases: 30,
          identity: 1,
        },
        {
          workspace_id: shop,
          day: '2026-07-02',
          lane: 1,
          attributes: 5,
          events: 5,
          purchases: 5,
          identity: 1,
        },
        {
          workspace_id: school,
          day: '2026-07-02',
          lane: 0,
          attributes: 0,
          events: 7,
          purchases: 0,
          identity: 1,
        },
      ]),
    ],
  );
});
afterAll(() => database.stop());

const july = ['--from', '2026-07-01', '--to', '2026-07-31'];
const shopSecond = {
  day: '2026-07-02',
  workspace: 'shop',
  attributes: 15,
  events: 25,
  purchases: 35,
  identity: 2,
  subscriptions: 14,
  total: 91,
};
const schoolSecond = {
  day: '2026-07-02',
  workspace: 'school',
  attributes: 0,
  events: 7,
  purchases: 0,
  identity: 1,
  subscriptions: 7,
  total: 15,
};
const shopFirst = {
  day: '2026-07-01',
  workspace: 'shop',
  attributes: 1,
  events: 2,
  purchases: 3,
  identity: 1,
  subscriptions: 7,
  total: 14,
};

describe('usage', () => {
  test('sums the lanes of each workspace and day, newest day first', async () => {
    expect(await on.json(['usage', ...july])).toEqual({
      usage: [shopSecond, schoolSecond, shopFirst],
      next: null,
    });
  });

  test('filters by workspace and by days, including the last day', async () => {
    expect(await on.json('usage --workspace school --from 2026-07-02 --to 2026-07-02')).toEqual({
      usage: [schoolSecond],
      next: null,
    });
    expect(await on.json('usage --from 2026-07-01 --to 2026-07-01')).toEqual({
      usage: [shopFirst],
      next: null,
    });
  });

  test('shows the last 31 days by default', async () => {
    await database.pool.query(
      `insert into usage (workspace_id, day, lane, events)
       select $1::uuid, (now() at time zone 'UTC')::date - days, 0, 1 from unnest(array[0, 30, 31]) as days`,
      [shop],
    );
    expect((await on.json('usage --workspace shop')).usage).toHaveLength(2);
  });

  test('pages', async () => {
    const first = await on.json(['usage', ...july, '--limit', '1']);
    expect(first).toEqual({ usage: [shopSecond], next: `2026-07-02/${shop}` });
    const rest = await on.json(['usage', ...july, '--after', first.next]);
    expect(rest).toEqual({ usage: [schoolSecond, shopFirst], next: null });
  });

  test('prints a table, or no usage if there are no rows', async () => {
    expect((await on.run(['usage', ...july])).stdout).toMatch(
      /^day +workspace +attributes +events +purchases +identity +subscriptions +total\n/,
    );
    expect((await on.run('usage --from 2020-01-01 --to 2020-01-02')).stdout).toBe('no usage\n');
  });

  test('rejects invalid days with the rule', async () => {
    expectRefusal(await on.run('usage --from 2026-02-30'), '--from', 'YYYY-MM-DD');
    expectRefusal(await on.run('usage --to 1.7.2026'), '--to', 'YYYY-MM-DD');
    expectRefusal(await on.run('usage --from 2026-07-02 --to 2026-07-01'), '2026-07-02 is later than');
    expectRefusal(await on.run('usage --after 2026-07-02'), '--after');
    expectRefusal(await on.run('usage --workspace moon'), "'moon'");
  });
});
