import { afterAll, beforeAll, expect, it } from 'vitest';
import { createStore, type Store } from '../operations/in-process.ts';
import { merge } from './objects.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.stop());

const time = '2026-01-01T00:00:00.000Z';

/** A user as exported; undefined: nobody. */
async function exported(external_id: string) {
  return (await store.exportIds({ external_ids: [external_id] })).body.users[0];
}

it('what the kept user lacks comes from the merged one, and what both have stays', async () => {
  await store.track({
    attributes: [
      {
        external_id: 'a1',
        first_name: 'Ada',
        last_name: 'Old',
        country: 'DE',
        email: 'a1@x.com',
        colour: 'red',
        size: 1,
      },
      { external_id: 'b1', first_name: 'Bea', colour: 'blue' },
    ],
    events: [
      { external_id: 'a1', name: 'seen', time },
      { external_id: 'b1', name: 'seen', time: '2026-01-02T00:00:00.000Z' },
    ],
    purchases: [{ external_id: 'a1', product_id: 'p', currency: 'EUR', price: 2, quantity: 3, time }],
  });
  await store.apply([merge('a1', 'b1')]);
  expect(await exported('a1')).toBeUndefined();
  expect(await exported('b1')).toMatchObject({
    first_name: 'Bea',
    last_name: 'Old',
    country: 'DE',
    email: 'a1@x.com',
    custom_attributes: { colour: 'blue', size: 1 },
    custom_events: [{ name: 'seen', first: time, last: '2026-01-02T00:00:00.000Z', count: 2 }],
    purchases: [{ name: 'p', count: 3 }],
    revenue: { EUR: 6 },
  });
});
