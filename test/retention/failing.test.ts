import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import type { ObjectStore } from '../../src/object-store/object-store.ts';
import { planRetention } from '../../src/retention/plan.ts';
import { eraseDeleted, planErasures } from '../../src/retention/restore.ts';
import { runRetention } from '../../src/retention/run.ts';
import { detachPartition } from '../../src/store/partitions.ts';
import { findDeleted } from '../../src/store/retention.ts';
import { merge, remove } from '../identity/objects.ts';
import { has } from '../identity/scene.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import * as at from './scene.ts';
import {
  begin,
  content,
  end,
  fill,
  hasTable,
  inFolder,
  nextMonth,
  other,
  restore,
  unreachable,
  withStore,
} from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);
afterEach(() => void vi.useRealTimers());

const failures = () =>
  at.scene.rows('select kind, task, failures, reason from retention_failures order by kind, task');

/** Ends the back-off of all failures. */
const wait = () => at.pool.query("update retention_failures set next_at = now() - interval '1 s'");

/** Returns the names of the archive's files in a folder. */
const filesIn = (folder: string, beginning: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => path.basename(name).startsWith(beginning))
    .sort();

test('a failed month is logged and retried with a growing delay, and other months are archived', async () => {
  const store = await inFolder();
  await fill(10);
  await fill(10, { of: other, from: 100 });
  const [before, errors] = [await content(), [] as unknown[]];
  let puts = 0;
  const put: ObjectStore['put'] = async (key, ...rest) => {
    if (!key.startsWith(`${at.workspaceId}/${at.month}/events-`)) return store.put(key, ...rest);
    puts += 1;
    throw new Error('no room for this one');
  };
  const log = { info() {}, error: (fields: unknown) => errors.push(fields) };
  const failing = withStore({ ...store, put }, { heedsBackOff: true, log });
  expect(await runRetention(failing, 'archive')).toMatchObject({ months: 3, failed: 1 });
  expect(await content(other)).toEqual([]);
  expect((await content()).length).toBe(10);
  expect(errors).toEqual([
    expect.objectContaining({ workspace_id: at.workspaceId, month: at.month, kind: 'events' }),
  ]);
  expect(await failures()).toEqual([
    { kind: 'events', task: 'archive', failures: 1, reason: 'no room for this one' },
  ]);
  expect(await runRetention(failing, 'archive')).toMatchObject({ failed: 0 });
  expect(puts).toBe(1);
  expect((await planRetention(failing)).due).toEqual([
    expect.objectContaining({ kind: 'events', waits: true }),
  ]);
  await wait();
  expect(await runRetention(failing, 'archive')).toMatchObject({ failed: 1 });
  const hours =
    'select extract(epoch from next_at - failed_at)::integer / 3600 as hours from retention_failures';
  expect(await at.scene.rows(hours)).toEqual([{ hours: 2 }]);
  // A run started by hand ignores the delay.
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ months: 1, failed: 0 });
  expect([await content(), await failures()]).toEqual([[], []]);
  await restore(store);
  expect(await content()).toEqual(before);
});

test('a failure is cleared once its month is kept', async () => {
  const store = await inFolder();
  await fill(1);
  const put = () => Promise.reject(new Error('no'));
  expect(await runRetention(withStore({ ...store, put }), 'archive')).toMatchObject({ failed: 2 });
  await at.setPolicy(at.workspaceId, null);
  await runRetention(withStore(store), 'archive');
  expect(await failures()).toEqual([]);
});

test('a damaged file blocks neither the restore of other files nor the erasure from them', async () => {
  const folder = temporaryFolder();
  const store = await inFolder(folder);
  await fill(10);
  await fill(5, { owner: 'bob', from: 100 });
  await runRetention(withStore(store), 'archive');
  await at.scene.apply([remove('bob')]);
  await at.scene.cleanUp();
  const [damaged] = filesIn(folder, 'events-');
  const bytes = readFileSync(path.join(folder, damaged!));
  writeFileSync(path.join(folder, damaged!), bytes.subarray(0, 200));
  await expect(restore(store)).rejects.toThrow(damaged);
  expect(await content()).toHaveLength(3);
  expect(await at.states()).toEqual(['removed', 'restored']);
  expect(await eraseDeleted(withStore(store), { days: 0 })).toEqual({
    files: 1,
    rewritten: 1,
    erased: 3,
    failed: 1,
  });
  // The erasure of the workspace is finished, and the damaged file is noted separately.
  expect(await at.scene.rows('select from archive_erasures')).toEqual([]);
  expect(await failures()).toEqual([expect.objectContaining({ kind: 'events', task: 'erase' })]);
  const patient = withStore(store, { heedsBackOff: true });
  expect(await planErasures(patient, {})).toEqual({ workspaces: [], months: [] });
  await wait();
  expect((await planErasures(patient, {})).months).toHaveLength(1);
  writeFileSync(path.join(folder, damaged!), bytes);
  expect(await eraseDeleted(patient, {})).toMatchObject({ files: 1, erased: 5, failed: 0 });
  expect(await failures()).toEqual([]);
  await restore(store);
  expect(await content()).toHaveLength(13);
});

test('a damaged file does not block a detached partition: its rows return to the table', async () => {
  const folder = temporaryFolder();
  const store = await inFolder(folder);
  await fill(10);
  const put: ObjectStore['put'] = async (key, from, options) => {
    const written = await store.put(key, from, options);
    // A late row forces the file to be read.
    if (key.includes('events-')) await fill(1, { from: -10 });
    return written;
  };
  const log = {
    error() {},
    info(_fields: unknown, message?: string) {
      if (message !== 'a partition was detached') return;
      for (const file of filesIn(folder, 'events-')) rmSync(path.join(folder, file));
    },
  };
  const before = (await content()).length;
  await runRetention(withStore({ ...store, put }, { log: log as never }), 'archive');
  expect(await hasTable()).toBe(false);
  expect(await failures()).toEqual([
    expect.objectContaining({ kind: 'events', task: 'archive', failures: 1 }),
  ]);
  expect((await content()).filter((row) => row.includes('seen'))).toHaveLength(before - 3 + 1);
});

test('an archive that always fails is not tried for each of very many months', async () => {
  const store = await unreachable();
  await fill(3);
  await fill(3, { of: other, from: 50 });
  let calls = 0;
  const put: ObjectStore['put'] = (...given) => {
    calls += 1;
    return store.put(...given);
  };
  expect(await runRetention(withStore({ ...store, put }), 'archive')).toMatchObject({ failed: 3 });
  expect(calls).toBe(3);
});

test('months discarded without an archive cause no erasure', async () => {
  await fill(3, { owner: 'dan' });
  await runRetention(withStore(undefined), 'discard');
  await at.scene.apply([remove('dan')]);
  await at.scene.cleanUp();
  expect(await at.scene.rows('select from archive_erasures')).toEqual([]);
  // A note of an earlier release has no file either.
  await at.pool.query("insert into archive_erasures values ($1, '2020-01-01', '2020-01-01')", [
    at.workspaceId,
  ]);
  expect((await planErasures(withStore(undefined), {})).workspaces).toEqual([]);
});

test('a process whose clock is ahead discards no recent month', async () => {
  await at.pool.query('select ensure_month_partitions(now(), 0)');
  const [{ month, name }] = await at.scene.rows(
    `select to_char(now() at time zone 'UTC', 'YYYY-MM') as month, 'events_' || to_char(now() at time zone 'UTC', 'YYYY_MM') as name`,
  );
  await at.pool.query(
    `insert into events select $1, (left(uuid_v7_floor(now())::text, 24) || '000000000001')::uuid, $2, 'seen', now()`,
    [at.workspaceId, await at.scene.profileId('ada')],
  );
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 10 * 365 * 86_400_000 });
  const { due } = await planRetention(withStore(undefined, { months: 1 }));
  expect(due.filter((one) => one.month >= month)).toEqual([]);
  vi.useRealTimers();
  await expect(detachPartition(at.pool, { name, kind: 'events', month, isDetached: false })).rejects.toThrow(
    'not old enough',
  );
});

test("an erasure misses no delete that happens meanwhile, whatever the process's clock is", async () => {
  const store = await inFolder();
  await fill(4, { owner: 'cyd' });
  await runRetention(withStore(store), 'archive');
  await at.pool.query("insert into archive_erasures values ($1, '2020-01-01', '2020-01-01')", [
    at.workspaceId,
  ]);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
  const get: ObjectStore['get'] = async (...given) => {
    await at.pool.query('update archive_erasures set latest = now()');
    return store.get(...given);
  };
  await eraseDeleted(withStore({ ...store, get }), { days: 0 });
  const rows = "select since > now() - interval '1 minute' as late from archive_erasures";
  expect(await at.scene.rows(rows)).toEqual([{ late: true }]);
  await eraseDeleted(withStore(store), { days: 0 });
  expect(await at.scene.rows(rows)).toEqual([]);
});

test('a late settled delete keeps the time of a later one; settled merged users count as deleted', async () => {
  const store = await inFolder();
  await at.scene.apply([has('eve', {}), has('fay', {})]);
  await fill(2, { owner: 'eve' });
  const [eve, fay] = [await at.scene.profileId('eve'), await at.scene.profileId('fay')];
  await runRetention(withStore(store), 'archive');
  await at.scene.apply([merge('eve', 'fay')]);
  await at.scene.apply([remove('fay')]);
  // Before the tombstones are settled, eve is merged into a user that no longer exists.
  expect(await findDeleted(at.pool, at.workspaceId, [eve, fay])).toEqual([fay]);
  await at.pool.query("update removed_profiles set fate = 'deleted' where profile_id = $1", [eve]);
  expect((await findDeleted(at.pool, at.workspaceId, [eve, fay])).sort()).toEqual([eve, fay].sort());
  await at.pool.query("insert into archive_erasures values ($1, '2020-01-01', '2100-01-01')", [
    at.workspaceId,
  ]);
  await at.scene.cleanUp();
  expect(await at.scene.rows("select latest = '2100-01-01' as stays from archive_erasures")).toEqual([
    { stays: true },
  ]);
});

test.each([
  ['it archives', 'put'],
  ['it has verified a file, before the detach', 'get'],
] as const)('a run that loses its session while %s removes no rows', async (_when, call) => {
  const store = await inFolder();
  await fill(5);
  const before = await content();
  const lose = () =>
    at.pool.query(
      "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
    );
  const losing: ObjectStore = {
    ...store,
    async [call](...given: never[]) {
      const done = await (store[call] as (...given: never[]) => Promise<unknown>)(...given);
      if (call === 'put' || String(given[0]).includes('purchases-')) await lose();
      return done as never;
    },
  };
  await expect(runRetention(withStore(losing), 'archive')).rejects.toThrow('session');
  if (call === 'put') expect(await content()).toEqual(before);
  expect(await hasTable(`purchases_${at.month.replace('-', '_')}`)).toBe(true);
  expect((await content()).filter((row) => row.includes('hat'))).toHaveLength(3);
  expect(await failures()).toEqual([]);
});
