import { readSeries } from '../store/activity-series.ts';
import { purchaseSeries, readPurchases, seriesReply, toData } from './activity/activity.ts';
import type { DirectOperation } from './operation.ts';

/** GET /purchases/quantity_series: how many items were bought, by day or hour. */
export function purchasesQuantitySeries(): DirectOperation {
  return {
    ...purchaseSeries,
    id: 'purchases.quantity_series',
    path: '/purchases/quantity_series',
    permission: 'purchases.quantity_series',
    summary: 'Count the items bought by day or hour',
    description:
      'Counts by the time of the purchases, in UTC. A day or hour without purchases has 0. Purchases of users who were deleted later are counted.',
    replies: {
      200: {
        description: 'The series, oldest point first.',
        schema: seriesReply('purchase_quantity', 'Number of items bought.'),
      },
    },
    example: {
      query: { length: '2', ending_at: '2026-01-31T23:00:00Z', product: 'book' },
      reply: {
        data: [
          { time: '2026-01-30', purchase_quantity: 0 },
          { time: '2026-01-31', purchase_quantity: 2 },
        ],
        message: 'success',
      },
    },

    async handle({ workspaceId, now }, { query }, { database }) {
      const wanted = readPurchases(query, now);
      const points = await readSeries(database.pool, workspaceId, wanted);
      const data = toData(wanted, points, ['purchase_quantity', 'count']);
      return { status: 200, body: { data, message: 'success' } };
    },
  };
}
