import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AcceptedEvent, AcceptedObject } from '../../src/jobs/envelope.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { createStore, deliver, event, purchase } from './batch.ts';

let pool: pg.Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

const seen = (change: Partial<AcceptedEvent>): AcceptedEvent => ({ ...event('ada', 'seen'), ...change });

/** Returns the rows added by one transaction that applies the objects of several lanes and workspaces together. */
async function counted(given: { workspace?: string; lane?: number; objects: AcceptedObject[] }[]) {
  const workspaces = new Map<string, { id: string }>();
  const deliveries = [];
  for (const { workspace = 'shop', lane = 0, objects } of given) {
    const entry = workspaces.get(workspace) ?? (await createWorkspace(pool, crypto.randomUUID()));
    workspaces.set(workspace, entry);
    deliveries.push(deliver(entry, objects, lane));
  }
  const result = await applyBatch(pool, deliveries);
  expect(result).toMatchObject({ kind: 'applied', deadLetters: [] });
  const names = new Map([...workspaces].map(([name, { id }]) => [id, name]));
  const { rows } = await pool.query(
    `select workspace_id, kind, name, app_id, lane, currency, count::integer, revenue::text,
       to_char(hour at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI') as hour
     from activity_series where workspace_id = any($1::uuid[])
     order by kind, name, hour, workspace_id = $2::uuid desc, app_id, currency, lane`,
    [[...names.keys()], [...names.keys()][0]],
  );
  return rows.map(({ workspace_id, ...row }) => ({ workspace: names.get(workspace_id), ...row }));
}

test('an event counts in its UTC hour, even if its time was fixed by hand or by another release', async () => {
  const times = [
    '2026-01-31T12:59:59.999Z',
    '2026-01-31T12:00:00.000Z',
    '2026-01-31T18:00:00+05:30',
    '2026-01-31',
    '01/31/2026 12:00 UTC',
    '1969-12-31T23:59:59.999Z',
    '0001-01-01T00:00:00.000Z',
  ];
  const rows = await counted([{ objects: times.map((time) => seen({ time })) }]);
  expect(rows.map(({ hour, count }) => [hour, count])).toEqual([
    ['0001-01-01T00:00', 1],
    ['1969-12-31T23:00', 1],
    ['2026-01-31T00:00', 1],
    ['2026-01-31T12:00', 4],
  ]);
});

test('events are counted per workspace, lane and app, and also for all apps together', async () => {
  const rows = await counted([
    { objects: [seen({ app_id: 'ios' }), seen({ app_id: 'x'.repeat(256) }), seen({ app_id: '' }), seen({})] },
    { lane: 1, objects: [seen({ app_id: 'ios' })] },
    { workspace: 'school', objects: [seen({})] },
  ]);
  expect(rows.map(({ workspace, lane, app_id, count }) => [workspace, lane, app_id, count])).toEqual([
    ['shop', 0, '', 4],
    ['shop', 1, '', 1],
    ['shop', 0, 'ios', 1],
    ['shop', 1, 'ios', 1],
    ['school', 0, '', 1],
  ]);
});

test('purchases are summed exactly per product and in total, by currency', async () => {
  const bought = (product: string, price: number, more: object = {}) => ({
    ...purchase('ada'),
    ...{
      product_id: product,
      price,
      quantity: 3,
      currency: 'EUR',
      time: '2026-01-31T12:00:00.000Z',
      app_id: undefined,
    },
    ...more,
  });
  const rows = await counted([
    {
      objects: [
        bought('pen', 0.1),
        bought('pen', 0.2),
        bought('book', 1234567.89),
        bought('book', 1, { currency: 'JPY', app_id: 'ios' }),
      ],
    },
  ]);
  expect(
    rows.map(({ kind, name, app_id, currency, count, revenue }) => [
      ...[kind, name, app_id, currency, count, revenue],
    ]),
  ).toEqual([
    ['product', 'book', '', 'EUR', 3, '3703703.67'],
    ['product', 'book', '', 'JPY', 3, '3'],
    ['product', 'book', 'ios', 'JPY', 3, '3'],
    ['product', 'pen', '', 'EUR', 6, '0.9'],
    ['purchases', '', '', 'EUR', 9, '3703704.57'],
    ['purchases', '', '', 'JPY', 3, '3'],
    ['purchases', '', 'ios', 'JPY', 3, '3'],
  ]);
});
