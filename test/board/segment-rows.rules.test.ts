import { describe, expect, test } from 'vitest';
import { definitionOfRows, type Row, rowsOf } from '../../src/board/pages/segment-rows.ts';
import { readDefinition } from '../../src/profile/segment.ts';

const row = (change: Partial<Row>): Row => ({
  ...{ kind: 'attribute', name: 'country', operator: 'equals', value: 'DE' },
  ...change,
});

const cases: [row: Row, definition: object][] = [
  [row({}), { attribute: 'country', equals: 'DE' }],
  [row({ operator: 'not_equals' }), { none: [{ attribute: 'country', equals: 'DE' }] }],
  [row({ operator: 'in', value: 'DE, AT' }), { attribute: 'country', in: ['DE', 'AT'] }],
  [row({ operator: 'exists', value: '' }), { attribute: 'country', exists: true }],
  [row({ operator: 'missing', value: '' }), { attribute: 'country', exists: false }],
  [
    row({ kind: 'custom_attribute', name: 'age', operator: 'more_than', value: '7' }),
    { custom_attribute: 'age', more_than: 7 },
  ],
  [
    row({ kind: 'custom_attribute', name: 'code', value: '"12"' }),
    { custom_attribute: 'code', equals: '12' },
  ],
  [row({ kind: 'custom_attribute', name: 'code', value: '12' }), { custom_attribute: 'code', equals: 12 }],
  [
    row({ kind: 'custom_attribute', name: 'code', value: '007' }),
    { custom_attribute: 'code', equals: '007' },
  ],
  [row({ kind: 'event', name: 'read', operator: 'exists', value: '' }), { event: 'read' }],
  [row({ kind: 'event', name: 'read', operator: 'missing', value: '' }), { none: [{ event: 'read' }] }],
  [
    row({ kind: 'event', name: 'read', operator: 'in_last_days', value: '30' }),
    { event: 'read', last_in_days: 30 },
  ],
  [
    row({ kind: 'purchase', name: 'book', operator: 'count_at_least', value: '3' }),
    { purchase: 'book', count_at_least: 3 },
  ],
  [
    row({ kind: 'email_subscription', name: '', operator: 'not_equals', value: 'unsubscribed' }),
    { none: [{ email_subscription: 'unsubscribed' }] },
  ],
];

test.each(cases)('the row %j is the filter %j, in both directions', (one, definition) => {
  const read = readDefinition(definition as never);
  expect(definitionOfRows({ match: 'all', rows: [one] })).toEqual(read);
  expect(rowsOf(read)?.rows).toEqual([one]);
});

test('a filter is shown as rows with the members in any order, as Postgres returns them', () => {
  const stored = JSON.parse('{"equals": "DE", "attribute": "country"}');
  expect(rowsOf(stored)?.rows).toEqual([row({})]);
});

describe('several rows', () => {
  const rows = cases.slice(0, 3).map(([one]) => one);
  test.each(['all', 'any'] as const)('rows are joined by %s', (match) => {
    const definition = definitionOfRows({ match, rows });
    expect(definition).toEqual({ [match]: cases.slice(0, 3).map(([, one]) => one) });
    expect(rowsOf(definition)).toEqual({ match, rows });
  });
});

test.each([
  [{ all: [{ any: [{ attribute: 'country', equals: 'DE' }] }] }],
  [{ custom_attribute: ['address', 'city'], equals: 'Bonn' }],
  [{ event: 'read', count_at_least: 1, last_in_days: 30 }],
  [{ attribute: 'country', in: ['a,b', 'c'] }],
])('the filter %j is edited as JSON only', (definition) => {
  expect(rowsOf(readDefinition(definition as never))).toBeUndefined();
});

test('a row with a wrong value names its field', () => {
  for (const [wrong, field] of [
    [row({ name: '' }), 'row_name_1'],
    [row({ kind: 'custom_attribute', operator: 'more_than', value: 'x' }), 'row_value_1'],
    [row({ name: 'planet' }), 'row_value_1'],
  ] as const)
    expect(() => definitionOfRows({ match: 'all', rows: [row({}), wrong] })).toThrow(
      expect.objectContaining({ field }),
    );
});
