import { expect, test } from 'vitest';
import { takePage } from '../../src/platform/paging.ts';

const cursorOf = (row: string) => `after-${row}`;

test.each([
  ['no row', [], { rows: [], next: null }],
  ['fewer rows than the limit', ['a'], { rows: ['a'], next: null }],
  ['as many rows as the limit', ['a', 'b'], { rows: ['a', 'b'], next: null }],
  ['one row more than the limit', ['a', 'b', 'c'], { rows: ['a', 'b'], next: 'after-b' }],
])('a page of %s has a cursor only if more rows follow', (_, fetched, page) => {
  expect(takePage(fetched, 2, cursorOf)).toEqual(page);
});
