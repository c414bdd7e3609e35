import { describe, expect, test } from 'vitest';
import { checkListHistory, type ListOperation } from '../../tools/chaos/check/list-history.ts';

type Outcome = 'ok' | 'failed' | 'unknown';
let clock = 0;

function change(kind: 'add' | 'remove', value: string, outcome: Outcome = 'ok'): ListOperation {
  const invoked = clock++;
  const completed = clock++;
  return { kind, client: 0, user: 'u', value, invoked, outcome, ...(outcome !== 'unknown' && { completed }) };
}
const add = (value: string, outcome?: Outcome) => change('add', value, outcome);
const remove = (value: string, outcome?: Outcome) => change('remove', value, outcome);
const read = (...values: string[]): ListOperation => ({
  ...{ kind: 'read', client: 1, user: 'u', values },
  ...{ invoked: clock++, completed: clock++ },
});
const check = (history: ListOperation[], ...last: string[]) =>
  checkListHistory(history, new Map([['u', last]])).map(({ invariant, what }) => `${invariant} ${what}`);

describe('a history of a list without an anomaly has no finding', () => {
  test.each<[string, () => ListOperation[], string[]]>([
    [
      'reads that are older than acknowledged adds',
      () => [add('a'), read(), add('b'), read('a'), read('a', 'b')],
      ['a', 'b'],
    ],
    [
      'an add without an answer that took effect',
      () => [add('a', 'unknown'), add('b'), read('a')],
      ['a', 'b'],
    ],
    ['an add without an answer that did not', () => [add('a', 'unknown'), add('b')], ['b']],
    [
      'a removal that took effect late',
      () => [add('a'), add('b'), remove('a'), read('a', 'b'), read('b')],
      ['b'],
    ],
    ['a removal without an answer', () => [add('a'), remove('a', 'unknown'), read('a')], ['a']],
  ])('%s', (_, history, last) => {
    expect(check(history(), ...last)).toEqual([]);
  });

  test('two overlapping adds may be in either order', () => {
    const [one, other] = [add('a'), add('b')];
    other.invoked = one.invoked;
    expect(check([one, other], 'b', 'a')).toEqual([]);
  });
});

describe('an anomaly in a history of a list is found', () => {
  test.for<[string, () => ListOperation[], string[], RegExp]>([
    ['a lost add', () => [add('a'), add('b')], ['b'], /^I1 u: a was acknowledged and is not there/],
    ['an add that is lost after it was read', () => [add('a'), read('a')], [], /^I1 u: a was acknowledged/],
    ['a lost removal', () => [add('a'), remove('a')], ['a'], /^I1 u: the removal of a was acknowledged/],
    ['an add that took effect twice', () => [add('a'), read('a', 'a')], ['a'], /^I2 u: a read shows a twice/],
    [
      'a refused add that is read',
      () => [add('a', 'failed'), read('a')],
      ['a'],
      /^I3 .* whose add was refused/,
    ],
    ['a value that was never added', () => [add('a'), read('x')], ['a'], /^I3 .* which nobody added/],
    ['a read before the add', () => [read('a'), add('a')], ['a'], /^I3 .* before it was added/],
    ['two orders', () => [add('a'), add('b'), read('b', 'a')], ['a', 'b'], /^I4 u: a read is no prefix/],
    [
      'a read of the past',
      () => [add('a'), add('b'), read('a', 'b'), read('a')],
      ['a', 'b'],
      /^I4 u: a read shows 1 values after/,
    ],
    [
      'an order other than the order of acceptance',
      () => [add('a'), add('b')],
      ['b', 'a'],
      /^I4 u: b is before a/,
    ],
    [
      'an order against an add without an answer',
      () => [add('a'), add('b', 'unknown')],
      ['b', 'a'],
      /^I4 u: b is before a/,
    ],
    [
      'a removed value that comes back',
      () => [add('a'), remove('a'), read('a'), read(), read('a')],
      [],
      /^I4 u: a came back/,
    ],
    [
      'a value that is gone before its removal',
      () => [add('a'), read('a'), read(), remove('a')],
      [],
      /^I4 u: a was gone before/,
    ],
  ])('%s', ([, history, last, wanted]) => {
    expect(check(history(), ...last)).toContainEqual(expect.stringMatching(wanted));
  });
});
