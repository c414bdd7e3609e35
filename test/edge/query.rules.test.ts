import { expect, test } from 'vitest';
import { parseQuery } from '../../src/edge/request.ts';

test.each([
  [null, {}],
  ['', {}],
  ['a=1&b=', { a: '1', b: '' }],
  ['a=1&a=2', { a: ['1', '2'] }],
  ['a[]=1', { a: ['1'] }],
  ['a%5B%5D=1&a[]=2', { a: ['1', '2'] }],
  ['a[0]=1&a[1]=2', { a: ['1', '2'] }],
  ['a=1&a[]=2', { a: ['1', '2'] }],
  ['a[b]=1', { 'a[b]': '1' }],
  ['a=%2B+x', { a: '+ x' }],
  ['a=%', { a: '%' }],
])('the query %s', (text, parsed) => {
  expect(parseQuery(text)).toEqual(parsed);
});

test('a list of any length is an array', () => {
  const values = Array.from({ length: 60 }, (_, index) => String(index));
  for (const name of ['a', 'a[]']) {
    expect(parseQuery(values.map((value) => `${name}=${value}`).join('&'))).toEqual({ a: values });
  }
});

test('names of the language are ordinary parameter names', () => {
  expect(Object.entries(parseQuery('__proto__=1&constructor=2'))).toEqual([
    ['__proto__', '1'],
    ['constructor', '2'],
  ]);
});
