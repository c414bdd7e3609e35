import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BadRequest } from '../../src/errors.ts';
import { eventsDataSeries } from '../../src/operations/events.data_series.ts';
import { eventsList } from '../../src/operations/events.list.ts';
import type { DirectOperation } from '../../src/operations/operation.ts';
import { purchasesProductList } from '../../src/operations/purchases.product_list.ts';
import { purchasesQuantitySeries } from '../../src/operations/purchases.quantity_series.ts';
import { purchasesRevenueSeries } from '../../src/operations/purchases.revenue_series.ts';
import { newId } from '../../src/platform/ids.ts';
import { recountSeries } from '../../src/store/activity-series.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { type Answer, callerOf } from './caller.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

const now = Date.parse('2026-02-03T04:05:06Z');

async function send(
  operation: DirectOperation,
  query: Record<string, string>,
  workspace = store.workspaceId,
): Promise<Answer> {
  const resources = { database: store.database } as Parameters<DirectOperation['handle']>[2];
  return (await operation.handle(
    callerOf(workspace, { now }),
    { body: {}, query, params: {} },
    resources,
  )) as Answer;
}

const event = (name: string, time: string, more = {}) => ({ external_id: 'ada', name, time, ...more });
const purchase = (product_id: string, time: string, more = {}) => ({
  ...{ external_id: 'ada', product_id, currency: 'EUR', price: 1, time },
  ...more,
});

/** Creates a workspace for one test, and returns its id. */
const freshWorkspace = async () => (await createWorkspace(store.database.pool, newId())).id;

// "The event names are returned in groups of 250, sorted alphabetically", "defaults to 0 (returns the first
// set of up to
// 250)": the public page of GET /events/list. "a paginated list of product IDs", `products`: the public page
// of
// GET /purchases/product_list.
describe('names', () => {
  test('are in alphabetical order, 250 to a page, each once however often it was recorded', async () => {
    const workspace = await freshWorkspace();
    const names = Array.from({ length: 260 }, (_, n) => `event ${String(n).padStart(3, '0')}`);
    for (let start = 0; start < names.length; start += 65) {
      const events = names.slice(start, start + 65).map((name) => event(name, '2026-01-01T00:00:00Z'));
      await store.track({ events }, workspace);
    }
    await store.track({ events: [event(names[7]!, '2026-01-02T00:00:00Z', { app_id: 'app' })] }, workspace);
    const page = async (query: Record<string, string>) => (await send(eventsList(), query, workspace)).body;
    expect(await page({})).toEqual({ events: names.slice(0, 250), message: 'success' });
    expect(await page({ page: '0' })).toEqual(await page({}));
    expect(await page({ page: '1' })).toEqual({ events: names.slice(250), message: 'success' });
    expect(await page({ page: '2' })).toEqual({ events: [], message: 'success' });
    expect((await send(purchasesProductList(), {}, workspace)).body).toEqual({
      products: [],
      message: 'success',
    });
  });

  test('are listed only for their own workspace', async () => {
    const [mine, other] = [await freshWorkspace(), await freshWorkspace()];
    await store.track({ purchases: [purchase('book', '2026-01-01T00:00:00Z')] }, mine);
    await store.track({ purchases: [purchase('pen', '2026-01-01T00:00:00Z')] }, other);
    expect((await send(purchasesProductList(), {}, mine)).body.products).toEqual(['book']);
  });

  test.each(['-1', '81', 'first', '1.5'])('page %s is rejected', async (page) => {
    await expect(send(eventsList(), { page })).rejects.toThrow(
      "'page' is not valid: it must be a whole number, 0 to 80",
    );
  });
});

// "Maximum number of units (days or hours) before ending_at to include in the returned series. Must be between 1 and 100
// (inclusive)", "ISO 8601 extended when unit is hour and ISO 8601 date when unit is day": GET /events/data_series.
describe('series', () => {
  test('of one event have a point per UTC day up to ending_at, by the time of the events', async () => {
    const workspace = await freshWorkspace();
    await store.track(
      {
        events: [
          event('seen', '2026-01-29T23:59:59Z'),
          event('seen', '2026-01-30T00:00:00Z'),
          event('seen', '2026-02-01T01:00:00+02:00'),
          event('seen', '2026-02-01T00:00:00Z'),
          event('other', '2026-01-30T00:00:00Z'),
        ],
      },
      workspace,
    );
    await store.track({ events: [event('seen', '2026-01-30T12:00:00Z')] }, workspace);
    const query = { event: 'seen', length: '3', ending_at: '2026-01-31T22:00:00 02:00' };
    expect((await send(eventsDataSeries(), query, workspace)).body).toEqual({
      data: [
        { time: '2026-01-29', count: 1 },
        { time: '2026-01-30', count: 2 },
        { time: '2026-01-31', count: 1 },
      ],
      message: 'success',
    });
    const hours = { event: 'seen', length: '2', unit: 'hour', ending_at: '2026-01-30T00:30:00Z' };
    expect((await send(eventsDataSeries(), hours, workspace)).body.data).toEqual([
      { time: '2026-01-29T23:00:00Z', count: 1 },
      { time: '2026-01-30T00:00:00Z', count: 1 },
    ]);
    // The series ends at the time of the request.
    const { data } = (await send(eventsDataSeries(), { event: 'seen', length: '100' }, workspace)).body;
    expect(data).toHaveLength(100);
    expect(data.at(-1)).toEqual({ time: '2026-02-03', count: 0 });
    expect(data.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(5);
  });

  test('can be limited to one app', async () => {
    const workspace = await freshWorkspace();
    const long = 'a'.repeat(256);
    const time = '2026-02-03T00:00:00Z';
    const apps = [
      { app_id: 'ios' },
      { app_id: 'ios' },
      { app_id: 'web' },
      {},
      { app_id: '' },
      { app_id: long },
    ];
    await store.track({ events: apps.map((app) => event('seen', time, app)) }, workspace);
    const countOf = async (more: Record<string, string>) =>
      (await send(eventsDataSeries(), { event: 'seen', length: '1', ...more }, workspace)).body.data[0].count;
    expect(await countOf({})).toBe(6);
    expect(await countOf({ app_id: 'ios' })).toBe(2);
    expect(await countOf({ app_id: 'web' })).toBe(1);
    expect(await countOf({ app_id: 'none' })).toBe(0);
  });

  // "Maximum number of days before ending_at to include in the returned series. Must be between 1 and 100
  // (inclusive)", "Name of
  // product to filter response by", "the number of items purchased in the time period" (GET
  // /purchases/quantity_series);
  // "amount of revenue for the time period" (GET /purchases/revenue_series): get_number_of_purchases and
  // get_revenue_series
  // under https://www.braze.com/docs/api/endpoints/export/purchases/.
  test('of purchases count items per product and in all, and add money exactly per currency', async () => {
    const workspace = await freshWorkspace();
    const time = '2026-02-03T00:00:00Z';
    const bought = [
      purchase('book', time, { price: 0.1, quantity: 3 }),
      purchase('book', time, { price: 0.2 }),
      purchase('book', time, { price: 0.1 }),
      purchase('pen', time, { price: 1.005 }),
    ];
    await store.track({ purchases: bought }, workspace);
    const point = async (operation: DirectOperation, more: Record<string, string>) =>
      (await send(operation, { length: '1', ...more }, workspace)).body;
    expect((await point(purchasesQuantitySeries(), {})).data).toEqual([
      { time: '2026-02-03', purchase_quantity: 6 },
    ]);
    expect((await point(purchasesQuantitySeries(), { product: 'book' })).data[0].purchase_quantity).toBe(5);
    expect(await point(purchasesRevenueSeries(), { product: 'book' })).toEqual({
      data: [{ time: '2026-02-03', revenue: 0.6 }],
      currency: 'EUR',
      message: 'success',
    });
    expect((await point(purchasesRevenueSeries(), {})).data[0].revenue).toBe(1.605);

    await store.track({ purchases: [purchase('pen', time, { currency: 'USD', price: 5 })] }, workspace);
    await expect(point(purchasesRevenueSeries(), {})).rejects.toThrow(
      "'currency' is required: there are purchases in EUR, USD, and amounts are not converted",
    );
    expect((await point(purchasesRevenueSeries(), { currency: 'usd' })).data[0].revenue).toBe(5);
    expect((await point(purchasesQuantitySeries(), {})).data[0].purchase_quantity).toBe(7);
    expect(await point(purchasesRevenueSeries(), { product: 'nothing' })).toMatchObject({ currency: null });
  });

  test('are the same after a recount from the recorded rows, and continue to count', async () => {
    const rows = async () =>
      (
        await store.database.pool.query(
          `select workspace_id, kind, name, app_id, hour, currency, sum(count) as count, sum(revenue) as revenue
           from activity_series group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6`,
        )
      ).rows;
    const workspace = await freshWorkspace();
    const time = '2026-02-03T00:00:00Z';
    const apps = [{ app_id: 'ios' }, {}, { app_id: '\u{1f600}'.repeat(64) }];
    await store.track({ events: apps.map((app) => event('seen', time, app)) }, workspace);
    await store.track(
      { purchases: apps.map((app) => purchase('book', time, { price: 0.1, ...app })) },
      workspace,
    );
    const before = await rows();
    const tx = await store.database.pool.connect();
    await tx.query('begin');
    await recountSeries(tx);
    // Recording waits for the lock, and is counted afterwards.
    const later = store.track({ events: [event('seen', time)] }, workspace);
    await tx.query('commit');
    tx.release();
    await later;
    const counted = (row: { name: string; app_id: string; workspace_id: string }) =>
      row.workspace_id === workspace && row.name === 'seen' && row.app_id === '';
    const after = await rows();
    expect(Number(after.find(counted).count)).toBe(4);
    expect(after.filter((row) => !counted(row))).toEqual(before.filter((row) => !counted(row)));
  });

  test('count an event once it is recorded, and ignore an event without a matching user', async () => {
    const workspace = await freshWorkspace();
    const time = '2026-02-03T00:00:00Z';
    const nobody = { external_id: 'nobody', name: 'seen', time, _update_existing_only: true };
    await store.track({ events: [nobody, event('seen', time)] }, workspace);
    expect(
      (await send(eventsDataSeries(), { event: 'seen', length: '1' }, workspace)).body.data[0].count,
    ).toBe(1);
  });

  test.each<[string, Record<string, string>]>([
    ["'event' is required", { length: '1' }],
    ["'length' is required", { event: 'seen' }],
    ["'length' is not valid: it must be a whole number, 1 to 100", { event: 'seen', length: '101' }],
    ["'length' is not valid: it must be a whole number, 1 to 100", { event: 'seen', length: '0' }],
    ["'ending_at' is not valid", { event: 'seen', length: '1', ending_at: 'tomorrow' }],
    ["'ending_at' is not valid", { event: 'seen', length: '1', ending_at: '0001-01-01' }],
    ["'ending_at' is not valid", { event: 'seen', length: '1', ending_at: '9999-12-31' }],
    [
      "'segment_id' is not valid: events are not counted by segment",
      { event: 'a', length: '1', segment_id: 's' },
    ],
    ["'app_id' is not valid", { event: 'seen', length: '1', app_id: 'nul \0' }],
  ])('the error %s is returned for an invalid query', async (message, query) => {
    const requested = send(eventsDataSeries(), query);
    await expect(requested).rejects.toThrow(BadRequest);
    await expect(requested).rejects.toThrow(message);
  });

  test.each(['1970-01-01', '9998-12-31T23:59:59Z'])('may end at %s', async (ending_at) => {
    const answer = await send(eventsDataSeries(), { event: 'seen', length: '100', ending_at });
    expect(answer.body.data).toHaveLength(100);
  });
});
