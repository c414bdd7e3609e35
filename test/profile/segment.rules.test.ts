import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { type Definition, describe as inWords, readDefinition } from '../../src/profile/segment.ts';

const nested = (depth: number): Json => (depth === 0 ? { event: 'read' } : { all: [nested(depth - 1)] });

describe('an invalid filter is rejected with its position and rule', () => {
  test.each<[string, Json, string]>([
    ['a text', 'everyone', 'definition: a filter is an object'],
    ['null', null, 'definition: a filter is an object'],
    ['an array', [], 'definition: a filter is an object'],
    ['nothing', {}, 'definition: a filter has one of all, any, none, attribute'],
    ['two groups', { all: [], any: [] }, "definition: 'any' cannot be used with 'all'"],
    ['a group of no array', { any: {} }, 'definition.any: it must be an array of filters'],
    [
      'a wrong member deep inside',
      { all: [{ none: [{ event: '' }] }] },
      'definition.all[0].none[0].event is not valid',
    ],
    [
      'an unknown attribute',
      { attribute: 'shoe_size', equals: 1 },
      'definition.attribute is not valid: it must be one of',
    ],
    [
      'an attribute without a condition',
      { attribute: 'email' },
      "definition: 'attribute' requires one of equals",
    ],
    [
      'two kinds',
      { attribute: 'email', event: 'read' },
      "definition: 'event' cannot be used with 'attribute'",
    ],
    [
      'a number as text',
      { custom_attribute: 'a', more_than: '5' },
      'definition.more_than is not valid: it must be a number',
    ],
    [
      'no time',
      { attribute: 'created_at', before: 'yesterday' },
      'definition.before is not valid: it must be a time',
    ],
    [
      'half a day',
      { event: 'read', last_in_days: 0.5 },
      'last_in_days is not valid: it must be a whole number, 1 to',
    ],
    [
      'an object as value',
      { custom_attribute: 'a', equals: {} },
      'definition.equals is not valid: it must be a string',
    ],
    [
      'an empty list',
      { attribute: 'country', in: [] },
      'definition.in is not valid: it must be an array of 1 to 500',
    ],
    ['a long list', { attribute: 'country', in: Array(501).fill('x') }, 'definition.in is not valid'],
    ['an empty path', { custom_attribute: [], exists: true }, 'definition.custom_attribute is not valid'],
    [
      'a group without a state',
      { subscription_group: '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f' },
      "'state' is required with",
    ],
    [
      'a group that is not an id',
      { subscription_group: 'news', state: 'subscribed' },
      'it must be the id of a subscription group',
    ],
    [
      'a state of another kind',
      { email_subscription: 'maybe' },
      "it must be 'subscribed' or 'unsubscribed' or 'opted_in'",
    ],
    ['a text that no row can contain', { event: 'a\u0000b' }, 'definition.event is not valid'],
    ['too deep', nested(7), 'filters are nested more than 5 deep'],
    ['too many', { any: Array(51).fill({ event: 'read' }) }, 'there are more than 50 filters'],
    [
      'false for a purchase',
      { any_purchase: false },
      'definition.any_purchase is not valid: it must be true',
    ],
  ])('%s', (_, given, message) => {
    expect(() => readDefinition(given)).toThrow(message);
  });
});

test('a filter is normalized: times to UTC, and addresses as they are stored', () => {
  const given = {
    all: [
      { attribute: 'email', in: ['Ada@Example.com'] },
      { attribute: 'created_at', after: '2026-01-02T03:04:05+02:00' },
      { none: [{ event: 'read', count_at_most: 3 }] },
    ],
  };
  expect(readDefinition(given)).toEqual({
    all: [
      { attribute: 'email', in: ['ada@example.com'] },
      { attribute: 'created_at', after: '2026-01-02T01:04:05.000Z' },
      { none: [{ event: 'read', count_at_most: 3 }] },
    ],
  });
});

test.each<[Json, string]>([
  [{ all: [] }, 'everyone'],
  [{ any: [] }, 'nobody'],
  [{ attribute: 'country', equals: 'DE' }, 'attribute country equals "DE"'],
  [{ none: [{ any_purchase: true }] }, 'no purchase'],
  [{ none: [{ any_purchase: true, last_in_days: 14 }] }, 'no purchase in the last 14 days'],
  [{ none: [{ event: 'read', last_in_days: 1 }] }, 'no event read in the last day'],
  [{ none: [{ event: 'read', count_at_least: 3 }] }, 'not (event read count at least 3)'],
  [
    { none: [{ any_purchase: true }, { event: 'read', last_in_days: 30 }] },
    'not (any purchase or event read in the last 30 days)',
  ],
  [
    { event: 'read', count_at_least: 3, last_in_days: 30 },
    'event read count at least 3 and last in the last 30 days',
  ],
  [{ attribute: 'created_at', in_last_days: 7 }, 'attribute created_at in the last 7 days'],
  [
    {
      all: [
        { event: 'read', last_in_days: 30 },
        { custom_attribute: ['address', 'city'], exists: true },
      ],
    },
    '(event read in the last 30 days and custom attribute address.city exists true)',
  ],
])('%j is described as: %s', (given, words) => {
  expect(inWords(readDefinition(given) as Definition)).toBe(words);
});
