import fs, { readdirSync, readlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { runRetention } from '../../src/retention/run.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import { begin, content, end, fill, inFolder, nextMonth, restore, scene, withStore } from './scene.ts';

beforeAll(begin);
afterAll(end);
beforeEach(nextMonth);

/** Returns the prototype of file handles, to observe the calls of all handles of this process. */
async function handles(): Promise<FileHandle> {
  const handle = await open('/dev/null');
  await handle.close();
  return Object.getPrototypeOf(handle) as FileHandle;
}

const nameOf = (handle: FileHandle) => readlinkSync(`/proc/self/fd/${handle.fd}`);

test('a full scratch disk is reported with the file to restore, and the next restore succeeds', async () => {
  const store = await inFolder();
  await fill(5);
  const before = await content();
  await runRetention(withStore(store), 'archive');
  const { write } = fs;
  const spy = vi.spyOn(fs, 'write').mockImplementation(((fd: number, ...given: unknown[]) => {
    if (!readlinkSync(`/proc/self/fd/${fd}`).endsWith('rows.parquet'))
      return (write as (...given: unknown[]) => void)(fd, ...given);
    const full = Object.assign(new Error('no space left on device'), { code: 'ENOSPC', syscall: 'write' });
    (given.at(-1) as (error: Error) => void)(full);
  }) as never);
  await expect(restore(store)).rejects.toThrow(
    /\/events-[^ ]+\.parquet: the disk with the temporary copy in .* is full/,
  );
  spy.mockRestore();
  await restore(store);
  expect(await content()).toEqual(before);
});

test('a full archive disk is reported by file and leaves no partial file; the next run works', async () => {
  const folder = temporaryFolder();
  const store = await inFolder(folder);
  await fill(5);
  const before = await content();
  const prototype = await handles();
  const { write } = prototype;
  const spy = vi.spyOn(prototype, 'write').mockImplementation(function (this: FileHandle, ...given: never[]) {
    if (!nameOf(this).startsWith(folder)) return (write as (...given: never[]) => never).apply(this, given);
    return Promise.reject(Object.assign(new Error('no space left on device'), { code: 'ENOSPC' })) as never;
  } as never);
  const full = await runRetention(withStore(store), 'archive');
  spy.mockRestore();
  expect(full).toMatchObject({ months: 0, failed: 2 });
  expect(await content()).toEqual(before);
  for (const { reason } of await scene.rows('select reason from retention_failures'))
    expect(reason).toMatch(/parquet cannot be written: its disk is full/);
  expect(
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
      (name) => name.endsWith('.parquet') || name.startsWith('.unfinished/'),
    ),
  ).toEqual([]);
  expect(await runRetention(withStore(store), 'archive')).toMatchObject({ months: 2, failed: 0 });
  await restore(store);
  expect(await content()).toEqual(before);
});
