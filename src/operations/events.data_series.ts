import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import { invalid, required } from '../profile/refusal.ts';
import { readSeries } from '../store/activity-series.ts';
import { readName, readSeriesRange, seriesParameters, seriesReply, toData } from './activity/activity.ts';
import type { DirectOperation } from './operation.ts';

/** GET /events/data_series: how often an event happened, by day or hour. */
export function eventsDataSeries(): DirectOperation {
  return {
    kind: 'direct',
    id: 'events.data_series',
    method: 'GET',
    path: '/events/data_series',
    permission: 'events.data_series',
    bucket: 'default',
    isLarge: true,
    summary: 'Count a custom event by day or hour',
    description:
      'Counts by the time of the events, in UTC. A day or hour without the event has 0, and so has an event that was never recorded. Events of users who were deleted later are counted.',
    query: {
      type: 'object',
      required: ['event', 'length'],
      properties: {
        event: { type: 'string', description: 'The name of the event.', rule: 'it must be a string' },
        ...seriesParameters,
        segment_id: {
          type: 'string',
          description: 'Not supported: a request with it is refused with 400.',
          rule: 'it must be absent',
        },
      },
    },
    replies: {
      200: {
        description: 'The series, oldest point first.',
        schema: seriesReply('count', 'How often the event happened.'),
      },
    },
    example: {
      query: { event: 'signed_up', length: '2', ending_at: '2026-01-31T23:00:00Z' },
      reply: {
        data: [
          { time: '2026-01-30', count: 0 },
          { time: '2026-01-31', count: 1 },
        ],
        message: 'success',
      },
    },

    async handle({ workspaceId, now }, { query }, { database }) {
      const name = readName(query, 'event');
      if (name === undefined) throw new BadRequest(required('event'));
      if (isGiven(query.segment_id))
        throw new BadRequest(invalid('segment_id', 'events are not counted by segment'));
      const range = readSeriesRange(query, now);
      const points = await readSeries(database.pool, workspaceId, { kind: 'event', name, ...range });
      return { status: 200, body: { data: toData(range, points, ['count', 'count']), message: 'success' } };
    },
  };
}
