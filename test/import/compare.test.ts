import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { type CompareOptions, compareExports } from '../../src/import/compare.ts';
import { fileOf, zipOf } from './scene.ts';

const options: CompareOptions = {
  shown: 20,
  scratchBytes: 100_000_000,
  leaving: new AbortController().signal,
};

const lines = (users: readonly object[]) => users.map((user) => `${JSON.stringify(user)}\n`).join('');
const comparing = (theirs: string, ours: string, more: Partial<CompareOptions> = {}) =>
  compareExports(theirs, ours, { ...options, ...more });
const compared = (theirs: readonly object[], ours: readonly object[], more: Partial<CompareOptions> = {}) =>
  comparing(fileOf('theirs.ndjson', lines(theirs)), fileOf('ours.ndjson', lines(ours)), more);

test('a user that two services export in their own form is the same', async () => {
  const theirs = {
    ...{ external_id: 'ada', braze_id: 'aaa', created_at: '2020-01-01T00:00:00.000Z', random_bucket: 7 },
    ...{
      first_name: 'Ada',
      last_name: null,
      total_revenue: 3,
      apps: [],
      campaigns_received: [{ name: 'a' }],
    },
    user_aliases: [
      { alias_name: 'x', alias_label: 'b' },
      { alias_name: 'y', alias_label: 'a' },
    ],
    custom_attributes: { plan: 'pro', since: '2026-01-31T12:00:00.000+01:00', nested: { b: 1, a: [1] } },
    custom_events: [
      { name: 'b', first: '2026-01-01T00:00:00.123Z', last: '2026-01-02T00:00:00Z', count: 2 },
      { name: 'a', first: '2026-01-01T00:00:00Z', last: '2026-01-02T00:00:00Z', count: 1 },
    ],
    push_subscribe: 'subscribed',
  };
  const ours = {
    ...{ external_id: 'ada', service_id: 'bbb', created_at: '2026-01-01T00:00:00.000Z', random_bucket: 9 },
    ...{ first_name: 'Ada', total_revenue: 3, email_subscribe: 'subscribed', home_city: '' },
    user_aliases: [
      { alias_name: 'y', alias_label: 'a' },
      { alias_name: 'x', alias_label: 'b' },
    ],
    custom_attributes: { nested: { a: [1], b: 1 }, since: '2026-01-31T11:00:00Z', plan: 'pro' },
    custom_events: [
      { name: 'a', first: '2026-01-01', last: '2026-01-02', count: 1 },
      { name: 'b', first: '2026-01-01', last: '2026-01-02', count: 2 },
    ],
  };
  const comparison = await compared([theirs], [ours]);
  expect(comparison).toMatchObject({ same: 1, differ: 0, only_theirs: 0, only_ours: 0, passed_over: 0 });
  expect(comparison.first).toEqual([]);
});

test('users that differ or exist on one side only are counted and shown by user and field', async () => {
  const comparison = await compared(
    [
      { external_id: 'a', email: 'a@example.com', custom_attributes: { plan: 'pro', n: 1, x: 1 } },
      { external_id: 'b', email: 'b@example.com' },
      { user_aliases: [{ alias_name: 'tablet', alias_label: 'device' }], email: 'c@example.com' },
    ],
    [
      { external_id: 'a', email: 'A2@example.com', custom_attributes: { plan: 'free', n: 1 } },
      { user_aliases: [{ alias_name: 'tablet', alias_label: 'device' }], email: 'c@example.com' },
      { email: 'd@example.com' },
    ],
  );
  expect(comparison).toMatchObject({
    ...{ same: 1, differ: 1, only_theirs: 1, only_ours: 1, passed_over: 0 },
    fields: { email: 1, custom_attributes: 1 },
    not_compared: [],
  });
  expect(comparison.first).toHaveLength(5);
  expect(comparison.first).toEqual(
    expect.arrayContaining([
      { user: 'external_id a', field: 'custom_attributes.plan', theirs: '"pro"', ours: '"free"' },
      { user: 'external_id a', field: 'custom_attributes.x', theirs: '1', ours: null },
      { user: 'external_id a', field: 'email', theirs: '"a@example.com"', ours: '"a2@example.com"' },
      { user: 'external_id b', field: 'user', theirs: 'only there', ours: null },
      { user: 'email d@example.com', field: 'user', theirs: null, ours: 'only here' },
    ]),
  );
});

test('a field that only one export has is named and not compared', async () => {
  const comparison = await compared(
    [{ external_id: 'a', first_name: 'Ada', phone: '+14155552671' }],
    [{ external_id: 'a', first_name: 'Ada', custom_attributes: { plan: 'pro' } }],
  );
  expect(comparison).toMatchObject({ same: 1, differ: 0, not_compared: ['phone', 'custom_attributes'] });
});

test('invalid, anonymous and duplicate rows are counted without effect on the result', async () => {
  const content = `${lines([{ external_id: 'a', email: 'a' }, { external_id: 'a', email: 'b' }, { service_id: 'x' }])}[1]\nx\n${'['.repeat(100_000)}\n`;
  const comparison = await comparing(
    fileOf('theirs.ndjson', content),
    fileOf(
      'ours.ndjson',
      lines([
        { external_id: 'a', email: 'a' },
        { external_id: 'a', email: 'c' },
      ]),
    ),
  );
  expect(comparison).toMatchObject({ same: 1, differ: 0, only_theirs: 0, only_ours: 0, passed_over: 6 });
});

test('archives of many files are compared with a folder, also for more users than are shown', async () => {
  const users = Array.from({ length: 5000 }, (_, n) => ({
    external_id: `user-${n}`,
    first_name: `n${n % 10}`,
  }));
  const zipped = [users.slice(0, 100), users.slice(100)].map((content, n) => ({
    name: `${n}.txt`,
    content: lines(content),
  }));
  const folder = path.dirname(fileOf('manifest.json', '{\n}\n'));
  mkdirSync(path.join(folder, 'part'));
  const changed = users.map((user, n) => (n % 2 === 0 ? user : { ...user, first_name: 'other' }));
  writeFileSync(path.join(folder, '1.ndjson.gz'), gzipSync(lines(changed.slice(0, 3000))));
  writeFileSync(path.join(folder, 'part', '2.ndjson'), lines(changed.slice(3000)));
  const comparison = await comparing(fileOf('theirs.zip', zipOf(zipped)), folder, { shown: 3 });
  expect(comparison).toMatchObject({ same: 2500, differ: 2500, fields: { first_name: 2500 } });
  expect(comparison.first).toHaveLength(3);
});

test('a comparison rejects a JSON array with the line, the rule and a command that converts it', async () => {
  const array = fileOf('theirs.json', JSON.stringify([{ external_id: 'a' }]));
  const rule = `${array}, line 1: the file is a JSON array, but one JSON object per line is required; convert it with jq`;
  await expect(comparing(array, array)).rejects.toThrow(rule);
});

test('a missing file, the disk limit and a stop end the comparison', async () => {
  const file = fileOf('a.ndjson', lines([{ external_id: 'a' }]));
  await expect(comparing(file, `${file}.none`)).rejects.toThrow('cannot be read: ENOENT');
  await expect(comparing(file, file, { scratchBytes: 10 })).rejects.toThrow('SYNC_SCRATCH_BYTES');
  const leaving = AbortSignal.abort(new Error('stopped'));
  await expect(comparing(file, file, { leaving })).rejects.toThrow('stopped');
});
