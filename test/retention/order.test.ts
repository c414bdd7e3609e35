import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { archiveMonth } from '../../src/retention/archive.ts';
import { runRetention } from '../../src/retention/run.ts';
import * as at from './scene.ts';
import { begin, content, dying, end, fill, inFolder, nextMonth, other, restore, withStore } from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);

test('users with interleaved rows are archived completely, in key order across files', async () => {
  const store = await inFolder();
  for (const [index, owner] of ['ada', 'bob', 'cyd', 'dan'].entries())
    await fill(7, { owner, from: index * 3 });
  const before = await content();
  expect(await runRetention(withStore(dying(store, 'get', 3), { rowsOfFile: 5 }), 'archive')).toMatchObject({
    months: 0,
    failed: 2,
  });
  expect(await content()).toEqual(before);
  expect(await runRetention(withStore(store, { rowsOfFile: 5 }), 'archive')).toMatchObject({ dropped: 2 });
  expect(await content()).toEqual([]);
  expect(await restore(store)).toMatchObject({ restored: 40, present: 0 });
  expect(await content()).toEqual(before);
});

test('a run continues after the files of an earlier release, which were ordered by id', async () => {
  const store = await inFolder();
  for (const owner of ['ada', 'cyd']) await fill(5, { owner, from: owner === 'ada' ? 0 : 10 });
  await at.setPolicy(other, null);
  await fill(1, { of: other, from: 500 });
  const { workspaceId } = at;
  const days = { workspaceId, kind: 'events', month: at.month } as const;
  await archiveMonth(withStore(store), days);
  await at.pool.query('update archive_files set last_profile_id = null, last_id = null');
  for (const owner of ['bob', 'dan']) await fill(5, { owner, from: owner === 'bob' ? 20 : 30 });
  const before = await content();
  expect(await archiveMonth(withStore(store), days)).toBe(10);
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ deleted: 20 + 12, dropped: 0 });
  expect(await content()).toEqual([]);
  expect(await restore(store)).toMatchObject({ restored: 32, present: 0 });
  expect(await content()).toEqual(before);
});
