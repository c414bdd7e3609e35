import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import { newProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { mergeRules } from '../../src/profile/merge-rules.ts';
import type { MergeRule } from '../../src/profile/standard-columns.ts';
import { by, identity } from './objects.ts';
import { createScene, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

type Value = string | number | boolean | object | null;

const [early, late] = ['2026-01-01T00:00:00.000Z', '2026-02-01T00:00:00.000Z'];
const times: [Value, Value] = [early, late];
const texts: [Value, Value] = ['a', 'b'];

/** Two values per column, the smaller one first. */
const samples: Record<string, Record<string, [Value, Value]>> = {
  profiles: {
    external_id: ['rule a', 'rule b'],
    first_name: texts,
    last_name: texts,
    email: ['a@x.com', 'b@x.com'],
    phone: ['+442071838750', '+14155552671'],
    gender: ['F', 'M'],
    dob: ['2000-01-01', '2001-01-01'],
    home_city: texts,
    country: ['DE', 'FR'],
    language: ['de', 'fr'],
    time_zone: texts,
    image_url: texts,
    latitude: [0, 2],
    longitude: [0, 2],
    facebook: [{ id: 1 }, { likes: 2 }],
    twitter: [{ id: 1 }, { likes: 2 }],
    email_open_tracking_disabled: [false, true],
    email_click_tracking_disabled: [false, true],
    custom_attributes: [{ x: 1 }, { x: 2 }],
    date_of_first_session: times,
    date_of_last_session: times,
    marked_email_as_spam_at: times,
    email_subscribe: ['subscribed', 'unsubscribed'],
    push_subscribe: ['opted_in', 'unsubscribed'],
    created_at: times,
    attribute_changes: ['one\x1e', 'two\x1e'],
  },
  event_summaries: { first: times, last: times, count: [2, 5], updated_at: times },
  purchase_summaries: { first: times, last: times, count: [2, 5], revenue: [0.1, 0.2], updated_at: times },
  app_summaries: { sessions: [2, 5], first_session: times, last_session: times },
};

/** Values of columns that must not be null and are not in `cases`. */
const others: Record<string, Record<string, Value>> = {
  profiles: { created_at: early, updated_at: early, custom_attributes: {} },
  event_summaries: { name: 'seen', first: early, last: early, count: 1, updated_at: early },
  purchase_summaries: {
    ...{ product_id: 'book', currency: 'EUR', first: early, last: early, count: 1, revenue: 1 },
    updated_at: early,
  },
  app_summaries: { app_id: 'app', sessions: 1, first_session: early, last_session: early },
};

/** Triples of kept value, merged value, and the kept user's value after the merge. */
const cases: Record<MergeRule, (a: Value, b: Value) => [Value, Value, Value][]> = {
  keep: (a, b) => [
    [a, b, a],
    [b, a, b],
    [null, b, b],
    [null, a, a],
    [a, null, a],
  ],
  stay: (a, b) => [
    [a, b, a],
    [b, a, b],
    [null, b, null],
  ],
  join: (a, b) => [
    [a, b, `${a}${b}`],
    [`${a}cut`, b, `${a}${b}`],
    [null, b, b],
    [a, null, a],
  ],
  sum: (a, b) => [[a, b, Math.round(((a as number) + (b as number)) * 10) / 10]],
  earliest: (a, b) => [
    [a, b, a],
    [b, a, a],
    [null, b, b],
    [a, null, a],
  ],
  latest: (a, b) => [
    [a, b, b],
    [b, a, b],
    [null, b, b],
    [a, null, a],
  ],
  newest: (a, b) => [
    [a, b, b],
    [b, a, b],
  ],
};

const rules = Object.entries(mergeRules).flatMap(([table, columns]) =>
  Object.entries(columns).map(([column, rule]): [string, string, MergeRule] => [table, column, rule]),
);

describe('a merge', () => {
  test.each(rules)('%s.%s: %s', async (table, column, rule) => {
    const pair = samples[table]?.[column];
    expect(pair, `there are no samples for ${table}.${column}`).toBeDefined();
    const isNullable = table === 'profiles' && others.profiles![column] === undefined;
    for (const [kept, merged, expected] of cases[rule](...pair!)) {
      if (!isNullable && (kept === null || merged === null)) continue;
      const workspace = uuidv7();
      const [keptId, mergedId] = [newProfileId(1), newProfileId(2)];
      await insert(table, column, { workspace_id: workspace, id: keptId }, kept);
      await insert(table, column, { workspace_id: workspace, id: mergedId }, merged);
      await scene.apply(
        [
          identity('merge', {
            merge: by({ service_id: toServiceId(mergedId) }),
            keep: by({ service_id: toServiceId(keptId) }),
          }),
        ],
        workspace,
      );
      const key = table === 'profiles' ? 'id' : 'profile_id';
      const rows = await scene.rows(
        `select ${key} as id, to_jsonb(${column}) as value from ${table} where workspace_id = $1`,
        [workspace],
      );
      expect(rows.map(({ id, value }) => [id, asTime(value)])).toEqual([[keptId, expected]]);
    }
  });

  it('has a rule for every column of a profile', async () => {
    const columns = await scene.rows(
      "select column_name as name from information_schema.columns where table_name = 'profiles'",
    );
    const ruled = [...Object.keys(mergeRules.profiles), 'workspace_id', 'id', 'phone_valid', 'updated_at'];
    expect(columns.map(({ name }) => name).sort()).toEqual(ruled.sort());
  });

  test.each(Object.keys(mergeRules).filter((table) => table !== 'profiles'))(
    'has a rule for every column of %s outside of its key',
    async (table) => {
      const columns = await scene.rows(
        `select column_name as name from information_schema.columns
       where table_name = $1 and column_name not in (
         'workspace_id', 'profile_id', 'name', 'product_id', 'currency', 'app_id')`,
        [table],
      );
      const ruled = Object.keys(mergeRules[table as keyof typeof mergeRules]);
      expect(columns.map(({ name }) => name).sort()).toEqual(ruled.sort());
    },
  );
});

/** Inserts a profile with this value, in the column itself or in a summary. */
async function insert(
  table: string,
  column: string,
  { workspace_id, id }: { workspace_id: string; id: string },
  value: Value,
): Promise<void> {
  const given = {
    [column]: value,
    // A position needs both coordinates, and a number needs its validity.
    ...((column === 'latitude' || column === 'longitude') && { latitude: value, longitude: value }),
    ...(column === 'phone' && { phone_valid: value && true }),
  };
  const own = table === 'profiles' ? given : {};
  const put = (name: string, row: Record<string, Value>) =>
    scene.rows(`insert into ${name} select * from jsonb_populate_record(null::${name}, $1)`, [
      JSON.stringify({ workspace_id, ...others[name], ...row }),
    ]);
  await put('profiles', { id, ...own });
  if (table !== 'profiles') await put(table, { profile_id: id, ...given });
}

/** Formats times like the samples. */
function asTime(value: Value): Value {
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\dT/.test(value)) return value;
  return new Date(value).toISOString();
}
