import { expect, test } from 'vitest';
import type { EventRow } from '../../src/store/events.ts';
import { tallySeries } from '../../workers/batch/tally-series.ts';

const event = (change: Partial<EventRow>): EventRow => ({
  ...{ workspace_id: 'shop', id: 'id', profile_id: 'ada', name: 'seen', time: '2026-01-31T12:00:00.000Z' },
  ...{ app_id: undefined, properties: undefined, ordinal: 0, lane: 0 },
  ...change,
});
const hoursOf = (events: EventRow[]) =>
  tallySeries(events, []).map(({ workspace_id, lane, hour, app_id, count }) => [
    ...[workspace_id, lane, hour, app_id, count],
  ]);

test('a time that a person has mended, or another release has written, counts to its hour in UTC', () => {
  const times = [
    '2026-01-31T12:59:59.999Z',
    '2026-01-31T18:00:00+05:30',
    '2026-01-31',
    '01/31/2026 12:00 UTC',
  ];
  expect(hoursOf(times.map((time) => event({ time })))).toEqual([
    ['shop', 0, '2026-01-31T12:00:00Z', '', 3],
    ['shop', 0, '2026-01-31T00:00:00Z', '', 1],
  ]);
});

test.each(['soon', '', '0000-12-31T23:00:00Z', '+010000-01-01T00:00:00Z'])(
  'what is no time of the store (%j) is counted nowhere: the store refuses it',
  (time) =>
    expect(hoursOf([event({ time }), event({})])).toEqual([['shop', 0, '2026-01-31T12:00:00Z', '', 1]]),
);

test('workspaces, lanes and apps are counted apart, and every app with all of them', () => {
  const events = [
    event({ app_id: 'ios' }),
    event({ lane: 1 }),
    event({ workspace_id: 'school' }),
    event({ app_id: 'x'.repeat(256) }),
  ];
  expect(hoursOf(events)).toEqual([
    ['shop', 0, '2026-01-31T12:00:00Z', '', 2],
    ['shop', 0, '2026-01-31T12:00:00Z', 'ios', 1],
    ['shop', 1, '2026-01-31T12:00:00Z', '', 1],
    ['school', 0, '2026-01-31T12:00:00Z', '', 1],
  ]);
});
