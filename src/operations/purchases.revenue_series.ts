import { BadRequest } from '../errors.ts';
import { refuse } from '../profile/refusal.ts';
import { readSeries } from '../store/activity-series.ts';
import { purchaseSeries, readName, readPurchases, seriesReply, toData } from './activity/activity.ts';
import type { DirectOperation } from './operation.ts';

/** GET /purchases/revenue_series: how much was spent, by day or hour. */
export function purchasesRevenueSeries(): DirectOperation {
  return {
    ...purchaseSeries,
    id: 'purchases.revenue_series',
    path: '/purchases/revenue_series',
    permission: 'purchases.revenue_series',
    summary: 'Get the revenue by day or hour',
    description:
      'Sums by the time of the purchases, in UTC, in one currency. Amounts are not converted, so amounts of different currencies are never added up. If the period has purchases in several currencies, `currency` is required. Purchases of users who were deleted later are counted.',
    query: {
      ...purchaseSeries.query,
      properties: {
        ...purchaseSeries.query.properties,
        currency: {
          type: 'string',
          description: 'ISO 4217 code, by default the currency of all purchases in the period.',
          rule: 'it must be a string',
        },
      },
    },
    replies: {
      200: {
        description: 'The series, oldest point first.',
        schema: seriesReply('revenue', 'Revenue in `currency`.', {
          currency: {
            type: ['string', 'null'],
            description: 'Currency of all amounts, or null without purchases.',
          },
        }),
      },
    },
    example: {
      query: { length: '2', ending_at: '2026-01-31T23:00:00Z', product: 'book' },
      reply: {
        data: [
          { time: '2026-01-30', revenue: 0 },
          { time: '2026-01-31', revenue: 25 },
        ],
        currency: 'USD',
        message: 'success',
      },
    },

    async handle({ workspaceId, now }, { query }, { database }) {
      const wanted = readPurchases(query, now);
      const chosen = readName(query, 'currency')?.toUpperCase();
      const points = await readSeries(database.pool, workspaceId, wanted);
      const currencies = [...new Set(points.map(({ currency }) => currency))].sort();
      if (chosen === undefined && currencies.length > 1) {
        throw new BadRequest(
          refuse(
            'required',
            'currency',
            `'currency' is required: there are purchases in ${currencies.join(', ')}, and amounts are not converted`,
          ),
        );
      }
      const currency = chosen ?? currencies[0] ?? null;
      const paid = points.filter((point) => point.currency === currency);
      const data = toData(wanted, paid, ['revenue', 'revenue']);
      return { status: 200, body: { data, currency, message: 'success' } };
    },
  };
}
