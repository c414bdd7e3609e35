import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { openObjectStore } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import { planRetention } from '../../src/retention/plan.ts';
import { eraseDeleted } from '../../src/retention/restore.ts';
import { runRetention } from '../../src/retention/run.ts';
import { recountSeries } from '../../src/store/activity-series.ts';
import { detachPartition } from '../../src/store/partitions.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { merge, remove } from '../identity/objects.ts';
import { does } from '../identity/scene.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import * as at from './scene.ts';
import {
  begin,
  content,
  dying,
  end,
  fill,
  hasTable,
  inBucket,
  inFolder,
  nextMonth,
  other,
  restore,
  states,
  unreachable,
  withStore,
} from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);

describe.each([
  ['a folder', inFolder],
  ['a bucket', inBucket],
])('in %s', (_name, open) => {
  test('an expired month is archived and dropped, and restored unchanged, sums included', async () => {
    const store = await open();
    await fill(1203);
    const before = await content();
    const sums = await at.scene.rows('select * from event_summaries order by 1, 2, 3');
    expect((await planRetention(withStore(store))).due.map((one) => `${one.kind} ${one.month}`)).toEqual([
      `events ${at.month}`,
      `purchases ${at.month}`,
    ]);
    expect(await runRetention(withStore(store, { rowsOfFile: 700 }), 'archive')).toEqual({
      ...{ months: 2, archived: 1206, deleted: 0, dropped: 2, failed: 0 },
    });
    expect(await content()).toEqual([]);
    expect(await hasTable()).toBe(false);
    expect(await states()).toEqual(['removed', 'removed', 'removed']);
    expect(await restore(store)).toEqual({ files: 3, restored: 1206, present: 0, left_out: 0 });
    expect(await restore(store)).toEqual({ files: 3, restored: 0, present: 1206, left_out: 0 });
    expect(await content()).toEqual(before);
    expect(await at.scene.rows('select * from event_summaries order by 1, 2, 3')).toEqual(sums);
    // The restored month is kept until its time is over: no run archives it again.
    expect((await planRetention(withStore(store))).due).toEqual([]);
    await at.pool.query("update archive_files set restored_until = now() where state = 'restored'");
    expect(await runRetention(withStore(store), 'archive')).toMatchObject({ archived: 0, deleted: 1206 });
    expect(await content()).toEqual([]);
    expect(await states()).toEqual(['removed', 'removed', 'removed']);
  });
});

test('a month that another workspace keeps is removed row by row, without the rows of the other', async () => {
  const store = await inFolder();
  await fill(30);
  await fill(5, { of: other, from: 100 });
  await at.setPolicy(other, null);
  const kept = await content(other);
  expect(await runRetention(withStore(store), 'archive')).toEqual({
    months: 2,
    archived: 33,
    deleted: 33,
    dropped: 0,
    failed: 0,
  });
  expect([await content(), await content(other)]).toEqual([[], kept]);
  await at.setPolicy(other, undefined);
  expect((await planRetention(withStore(store))).due).toEqual([]);
  expect((await planRetention(withStore(store, { months: 1 }))).due).toHaveLength(2);
  expect(await runRetention(withStore(store, { months: 1 }), 'archive')).toMatchObject({
    archived: 8,
    dropped: 2,
  });
});

test('the default partition is archived too, and late rows are archived by the next run', async () => {
  const store = await inFolder();
  await at.pool.query(
    `drop table events_${at.month.replace('-', '_')}, purchases_${at.month.replace('-', '_')}`,
  );
  await fill(10);
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({
    archived: 13,
    deleted: 13,
    dropped: 0,
  });
  await fill(2, { from: 50 });
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ archived: 4, deleted: 4 });
  expect(await restore(store)).toMatchObject({ files: 4, restored: 17 });
});

test('a row inserted between archive and detach returns to the table', async () => {
  const store = await inFolder();
  await fill(20);
  const put: ObjectStore['put'] = async (key, from, options) => {
    const written = await store.put(key, from, options);
    if (key.includes('events-')) await fill(3, { from: -10 });
    return written;
  };
  await runRetention(withStore({ ...store, put }), 'archive');
  expect(await hasTable()).toBe(false);
  expect(await content()).toHaveLength(3);
  await runRetention(withStore(store), 'archive');
  expect(await content()).toEqual([]);
  expect(await restore(store)).toMatchObject({ restored: 29 });
});

test.each([
  ['an object is put, before it is read back', 'put', 1],
  ['the first file is verified', 'get', 2],
] as const)(
  'a run that dies when %s drops no month, and the next one resumes it',
  async (_when, call, times) => {
    const store = await inFolder();
    await fill(25);
    const before = await content();
    expect(
      await runRetention(withStore(dying(store, call, times), { rowsOfFile: 10 }), 'archive'),
    ).toMatchObject({ months: 0, failed: 2 });
    expect(await content()).toEqual(before);
    expect(await runRetention(withStore(store), 'archive')).toMatchObject({ dropped: 2 });
    expect(await content()).toEqual([]);
    expect((await store.list('')).objects).toHaveLength((await states()).length);
    await restore(store);
    expect(await content()).toEqual(before);
  },
);

test('a run that dies between the detach and the drop is resumed', async () => {
  const store = await inFolder();
  await fill(25);
  const before = await content();
  const log = {
    error() {},
    info(_fields: unknown, message?: string) {
      if (message === 'a partition was detached') throw new Error('killed');
    },
  };
  expect(await runRetention(withStore(store, { log: log as never }), 'archive')).toMatchObject({ failed: 2 });
  expect(await hasTable()).toBe(true);
  expect(await states()).toContain('verified');
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ dropped: 2 });
  expect(await hasTable()).toBe(false);
  await restore(store);
  expect(await content()).toEqual(before);
});

test('a file that was changed in the archive is reported by name, and the rows stay', async () => {
  const folder = temporaryFolder();
  const store = await openObjectStore(folder, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => Promise.reject(),
  });
  await fill(5);
  await fill(1, { of: other, from: 50 });
  await at.setPolicy(other, null);
  await runRetention(withStore(store), 'archive');
  const file = readdirSync(folder, { recursive: true, encoding: 'utf8' }).find((name) =>
    /events-.*parquet$/.test(name),
  )!;
  const bytes = readFileSync(path.join(folder, file));
  writeFileSync(path.join(folder, file), bytes.subarray(0, 200));
  await expect(restore(store)).rejects.toThrow(file);
});

test('no month is dropped while the archive cannot be reached', async () => {
  await fill(3);
  const before = await content();
  const store = await unreachable();
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ months: 0, failed: 2 });
  for (const { reason } of await at.scene.rows('select reason from retention_failures'))
    expect(reason).toContain('s3://none/archive');
  await expect(runRetention(withStore(undefined), 'archive')).rejects.toThrow('ARCHIVE_URL');
  expect(await content()).toEqual(before);
  expect(await runRetention(withStore(undefined), 'discard')).toMatchObject({
    months: 2,
    archived: 0,
    dropped: 2,
  });
  expect(await content()).toEqual([]);
});

test("a restored month omits deleted users and assigns merged users' rows to the keeper", async () => {
  const store = await inFolder();
  await fill(10);
  await fill(7, { owner: 'bob', from: 100 });
  await fill(4, { owner: 'cyd', from: 200 });
  await fill(2, { owner: 'dan', from: 300 });
  await runRetention(withStore(store), 'archive');
  await at.scene.apply([merge('cyd', 'ada'), merge('dan', 'bob')]);
  await at.scene.apply([remove('bob')]);
  await at.scene.cleanUp();
  expect(await at.scene.rows('select workspace_id from archive_erasures')).toEqual([
    { workspace_id: at.workspaceId },
  ]);
  expect(await restore(store)).toMatchObject({ restored: 10 + 3 + 4 + 3, left_out: 7 + 3 + 2 + 2 });
  const restored = await content();
  expect(restored).toHaveLength(20);
  const before = (await store.list('')).objects.map(({ key }) => key);
  expect(await eraseDeleted(withStore(store), { days: 0 })).toMatchObject({ rewritten: 2, erased: 14 });
  const after = (await store.list('')).objects.map(({ key }) => key);
  expect(after).toHaveLength(2);
  expect(after.filter((key) => before.includes(key))).toEqual([]);
  expect(await at.scene.rows('select from archive_erasures')).toEqual([]);
  expect(await restore(store)).toMatchObject({ restored: 0, present: 20, left_out: 0 });
});

test('a recount leaves the series of archived months unchanged', async () => {
  await fill(1);
  await runRetention(withStore(await inFolder()), 'archive');
  await at.scene.apply([does('ada', 'counted')]);
  await at.pool.query(
    "update activity_series set count = count + 41 where workspace_id = $1 and name = 'counted' and app_id = ''",
    [at.workspaceId],
  );
  await inTransaction(at.pool, recountSeries);
  const [row] = await at.scene.rows(
    "select sum(count)::integer as count from activity_series where name = 'counted'",
  );
  expect(row.count).toBe(42);
});

test('while a month is detached, writes wait at most for the lock timeout', async () => {
  await fill(3);
  const reader = await at.pool.connect();
  await reader.query('begin');
  await reader.query('select count(*) from events');
  const name = `events_${at.month.replace('-', '_')}`;
  const partition = { name, kind: 'events' as const, month: at.month, isDetached: false };
  let done = false;
  const detaching = detachPartition(at.pool, partition).finally(() => {
    done = true;
  });
  const waits: number[] = [];
  while (waits.length < 30) {
    const began = performance.now();
    await at.scene.apply([does('ada', 'meanwhile')]);
    waits.push(performance.now() - began);
  }
  expect(done).toBe(false);
  expect(Math.max(...waits)).toBeLessThan(1000);
  await expect(detachPartition(at.pool, partition, { tries: 1 })).rejects.toThrow(
    `${name} could not be detached`,
  );
  await reader.query('commit');
  reader.release();
  await detaching;
  await runRetention(withStore(await inFolder()), 'archive');
  expect(await hasTable()).toBe(false);
});
