import { describe, expect, test } from 'vitest';
import { usersMerge } from '../../src/operations/users.merge.ts';
import type { Json } from '../../src/profile/json.ts';
import { identityPlanner, unstorable } from './identity-plan.ts';

const plan = identityPlanner(usersMerge(), { isBlocked: () => true });
const of = (merge: Json, keep: Json) => ({ identifier_to_merge: merge, identifier_to_keep: keep });
const good = of({ external_id: 'old' }, { external_id: 'ada' });
const email = (prioritization?: Json) => ({
  email: 'Ada@Example.com',
  ...(prioritization !== undefined && { prioritization }),
});

const words = {
  notObjects: "'merge_updates' must be an array of objects",
  tooMany: 'a single request may not contain more than 50 merge updates',
  malformed:
    "identifiers must be objects with an 'external_id' property that is a string, or 'user_alias' property that is an object",
  mixed: 'identifiers must be objects of the same type',
  extra: "'merge_updates' must only have 'identifier_to_merge' and 'identifier_to_keep'",
};

describe('two identifiers of one type are accepted', () => {
  const user_alias = { alias_name: 'ada', alias_label: 'forum' };
  test.for<[string, Json, object, object]>([
    [
      'external ids, also blocked ones',
      good,
      { identifier: { external_id: 'old' } },
      { identifier: { external_id: 'ada' } },
    ],
    [
      'aliases',
      of({ user_alias }, { user_alias: { ...user_alias, alias_name: 'b' } }),
      { identifier: { user_alias } },
      { identifier: { user_alias: { ...user_alias, alias_name: 'b' } } },
    ],
    [
      'email addresses, in any case, each with its own prioritization',
      of(email(['unidentified', 'least_recently_updated']), email(['identified'])),
      {
        identifier: { email: 'ada@example.com' },
        prioritization: ['unidentified', 'least_recently_updated'],
      },
      { identifier: { email: 'ada@example.com' }, prioritization: ['identified'] },
    ],
    [
      'phone numbers, however they are written',
      of(
        { phone: '+1 (415) 555-2671', prioritization: [] },
        { phone: 4155552671, prioritization: ['most_recently_updated'] },
      ),
      { identifier: { phone: '+14155552671' }, prioritization: [] },
      { identifier: { phone: '+14155552671' }, prioritization: ['most_recently_updated'] },
    ],
    [
      'the same user twice',
      of({ external_id: 'ada' }, { external_id: 'ada', email: null, phone: '' }),
      { identifier: { external_id: 'ada' } },
      { identifier: { external_id: 'ada' } },
    ],
  ])('%s', ([_case, update, merge, keep]) => {
    const { status, body, objects } = plan({ merge_updates: [update] });
    expect({ status, body }).toEqual({ status: 202, body: { message: 'success' } });
    expect(objects).toEqual([{ kind: 'merge', merge, keep }]);
  });

  test('up to 50 updates are accepted, each with its position', () => {
    const { plan: made } = plan({ merge_updates: Array(50).fill(good) });
    expect(made!.objects.map(({ index }) => index)).toEqual([...Array(50).keys()]);
    expect(new Set(made!.objects.map(({ id }) => id)).size).toBe(50);
  });
});

describe("the whole request is rejected with the specification's words", () => {
  test.each<[string, Json | undefined, string]>([
    ['no merge_updates', undefined, words.notObjects],
    ['an object instead of an array', good, words.notObjects],
    ['an empty array', [], words.notObjects],
    ['a text among the updates', [good, 'text'], words.notObjects],
    ['an array among the updates', [[]], words.notObjects],
    ['51 updates', Array(51).fill(good), words.tooMany],
  ])('%s', (_case, merge_updates, message) => {
    const body = merge_updates === undefined ? {} : { merge_updates };
    expect(plan(body)).toEqual({ status: 400, body: { message }, objects: [] });
  });

  test.each<[string, Json, string]>([
    ['a third key', { ...good, other: 1 }, words.extra],
    ['no identifier to keep', { identifier_to_merge: { external_id: 'a' } }, words.malformed],
    ['a text as identifier', of('a', { external_id: 'b' }), words.malformed],
    ['an empty identifier', of({}, { external_id: 'b' }), words.malformed],
    ['an integer as external id', of({ external_id: 7 }, { external_id: 'b' }), words.malformed],
    ['an empty external id', of({ external_id: '' }, { external_id: 'b' }), words.malformed],
    [
      'an external id of 988 bytes',
      of({ external_id: 'x'.repeat(988) }, { external_id: 'b' }),
      words.malformed,
    ],
    [
      'two identifiers in one',
      of({ external_id: 'a', email: 'a@example.com' }, { external_id: 'b' }),
      words.malformed,
    ],
    [
      'an unknown kind of identifier',
      of({ service_id: '0123456789abcdef01234567' }, { external_id: 'b' }),
      words.malformed,
    ],
    ['a kind that every object has', of({ constructor: 'a' }, { constructor: 'b' }), words.malformed],
    ['half an alias', of({ user_alias: { alias_name: 'a' } }, { user_alias: {} }), words.malformed],
    ['an invalid email address', of({ email: 'a', prioritization: [] }, email([])), words.malformed],
    [
      'an invalid phone number',
      of({ phone: '12', prioritization: [] }, { phone: '12', prioritization: [] }),
      words.malformed,
    ],
    ['two types', of(email(['identified']), { external_id: 'b' }), words.mixed],
    [
      'two types, even if other members are missing as well',
      of(email(), { phone: '+14155552671' }),
      words.mixed,
    ],
    ...unstorable.map(([id]): [string, Json, string] => [
      `an external id that cannot be stored: ${JSON.stringify(id)}`,
      of({ external_id: id }, { external_id: 'b' }),
      words.malformed,
    ]),
  ])('%s', (_case, update, message) => {
    expect(plan({ merge_updates: [good, update, {}] })).toEqual({
      status: 400,
      body: { message, errors: [{ type: message, input_array: 'merge_updates', index: 1 }] },
      objects: [],
    });
  });
});

describe('a prioritization', () => {
  const messages =
    "it must be an array of 'identified', 'unidentified', 'most_recently_updated', 'least_recently_updated'";
  const both = (one: string, other: string) =>
    `Request can not contain both of '${one}' and '${other}' values in the 'prioritization' array`;

  test.each<[string, Json | undefined, string]>([
    ['is required with an address', undefined, "'prioritization' is required with 'email'"],
    ['is not null', null, "'prioritization' is required with 'email'"],
    ['is an array', 'identified', `'prioritization' is not valid: ${messages}`],
    ['has only known values', ['identified', 'newest'], `'prioritization' is not valid: ${messages}`],
    [
      'contains only one of identified and unidentified',
      ['identified', 'unidentified'],
      both('identified', 'unidentified'),
    ],
    [
      'contains only one of most and least recently updated',
      ['least_recently_updated', 'most_recently_updated'],
      both('most_recently_updated', 'least_recently_updated'),
    ],
  ])('%s, else the whole request gets 400', (_rule, prioritization, type) => {
    for (const update of [of(email(prioritization), email([])), of(email([]), email(prioritization))]) {
      for (const [before, index] of [
        [[good], 1],
        [[], 0],
      ] as const) {
        expect(plan({ merge_updates: [...before, update, good] })).toEqual({
          status: 400,
          body: { message: words.malformed, errors: [{ type, input_array: 'merge_updates', index }] },
          objects: [],
        });
      }
      expect(plan({ merge_updates: [update] })).toMatchObject({
        status: 400,
        body: { message: words.malformed },
      });
    }
  });

  test('counts a repeated value once', () => {
    const twice: Json = ['identified', 'most_recently_updated', 'identified'];
    const { status, body, objects } = plan({ merge_updates: [of(email(twice), email(['identified']))] });
    expect({ status, body }).toEqual({ status: 202, body: { message: 'success' } });
    expect(objects).toMatchObject([
      {
        merge: { prioritization: ['identified', 'most_recently_updated'] },
        keep: { prioritization: ['identified'] },
      },
    ]);
  });

  test('is ignored for an identifier that names one user', () => {
    const { objects } = plan({
      merge_updates: [of({ external_id: 'a', prioritization: 'x' }, { external_id: 'b' })],
    });
    expect(objects).toEqual([
      {
        kind: 'merge',
        merge: { identifier: { external_id: 'a' } },
        keep: { identifier: { external_id: 'b' } },
      },
    ]);
  });
});
