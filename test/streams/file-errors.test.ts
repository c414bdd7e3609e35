import { chmodSync, mkdirSync, rmdirSync } from 'node:fs';
import { type FileHandle, open as openFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test, vi } from 'vitest';
import { accessBySettings } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import { fileLocationsOf } from '../../src/streams/file-locations.ts';
import { openFiles } from '../../src/streams/files.ts';
import { startS3, startStrictS3 } from '../integrations/s3.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import { event } from '../workers/batch.ts';
import { inFolder, messagesOf, streamToFiles } from './file-scene.ts';
import { apply, deliverStreams, pool, soon, useStore } from './scene.ts';

useStore();

const own = { access_key_id: 'S3RVER', secret_access_key: 'S3RVER' };
const bucket = (endpoint: string, name = 'none') => ({
  settings: { to: `s3://${name}/lake`, region: 'eu-central-1', endpoint, access_key_id: own.access_key_id },
  secret: own,
});

/** Returns a folder that cannot be written to, not even by root. */
function closedFolder(): string {
  if (process.getuid?.() === 0) return '/sys';
  const folder = temporaryFolder();
  chmodSync(folder, 0o500);
  return folder;
}

test('an unwritable target is reported, retried with a back-off, and delays no other stream', async () => {
  const wrong = { access_key_id: 'S3RVER', secret_access_key: 'wrong' };
  const strict = await startStrictS3();
  const targets = [
    [{ settings: { to: `file://${temporaryFolder()}/gone` } }, /gone is not an existing folder \(ENOENT\)/],
    [{ settings: { to: 'file:///etc' } }, /STREAM_FOLDERS/],
    [
      { settings: { to: `file://${closedFolder()}` } },
      /cannot be written: .*(permission denied|only be read)/,
    ],
    [bucket('http://127.0.0.1:9'), /s3:\/\/none\/lake.*ECONNREFUSED/],
    [bucket((await startS3()).endpoint), /NoSuchBucket/],
    [{ ...bucket(strict), secret: wrong }, /SignatureDoesNotMatch/],
    [{ settings: { to: 's3://none/lake' } }, /S3_REGION is not set/],
  ] as const;
  const streams = await Promise.all(targets.map(([targetStore]) => streamToFiles(targetStore)));
  const good = await inFolder();
  const fine = await streamToFiles(good, {}, streams[0]!.workspace);
  for (const { workspace } of streams) await apply(workspace, event('ada', 'one'));
  const settings = { S3_REGION: '', S3_ENDPOINT: '', S3_ACCESS_KEY_ID: '', S3_SECRET_ACCESS_KEY: '' };
  const files = {
    folders: [path.dirname(temporaryFolder()), '/sys'],
    bucketAccess: () => accessBySettings(settings),
  };
  const running = deliverStreams({ opening: { files } });
  for (const [index, { state }] of streams.entries()) {
    await soon(async () => (await state()).failures > 0);
    const { lastError, nextTryAt, lag, delivered } = await state();
    expect(lastError).toMatch(targets[index]![1]);
    expect(lastError).not.toContain('wrong');
    expect([nextTryAt instanceof Date, lag > 0, delivered]).toEqual([true, true, 0]);
  }
  await soon(async () => (await fine.state()).delivered === 1);
  await running.stop();
  expect(messagesOf(await good.files()).map(({ data }) => data.name)).toEqual(['one']);
});

/** Returns the prototype of file handles, to observe the calls of all handles of this process. */
async function handlePrototype(): Promise<FileHandle> {
  const handle = await openFile('/dev/null');
  await handle.close();
  return Object.getPrototypeOf(handle) as FileHandle;
}

test('a full or unmounted disk loses no message: all are written in order once there is room', async () => {
  const folder = path.join(temporaryFolder(), 'lake');
  const targetStore = await inFolder(folder);
  const { workspace, state, id } = await streamToFiles(targetStore);
  const again = () => pool.query('update stream_destinations set next_try_at = null where id = $1', [id]);
  await apply(workspace, event('ada', 'one'));
  const running = deliverStreams();
  await soon(async () => /not an existing folder/.test((await state()).lastError ?? ''));
  mkdirSync(folder);
  const full = vi
    .spyOn(await handlePrototype(), 'write')
    .mockRejectedValue(Object.assign(new Error(), { code: 'ENOSPC' }));
  await apply(workspace, event('ada', 'two'));
  await again();
  await soon(async () => /its disk is full/.test((await state()).lastError ?? ''));
  expect(await targetStore.files()).toEqual([]);
  full.mockRestore();
  await again();
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  expect(messagesOf(await targetStore.files()).map(({ data }) => data.name)).toEqual(['one', 'two']);
  expect(await state()).toMatchObject({ failures: 0, lastError: null });
});

const { signal } = new AbortController();
const opened = (to: string, given: Partial<Parameters<typeof openFiles>[0]> = {}) =>
  openFiles({
    ...{ settings: { to, format: 'ndjson', region: 'eu', access_key_id: 'a' }, account: own },
    ...{ reach: createReach({ refused: 'none' }), serviceIdField: 'service_id' },
    locations: fileLocationsOf({ STREAM_FOLDERS: '/', DATA_DIR: '/none' } as never),
    ...given,
  });

test('a bucket at a refused address is never connected to', async () => {
  const { settings } = bucket('http://169.254.169.254');
  const files = opened('', {
    settings: { ...settings, format: 'ndjson' },
    reach: createReach({ refused: 'metadata' }),
  });
  await expect(files.check(signal)).rejects.toThrow('REFUSED_NETWORKS');
});

test('a hanging target is given up after a timeout, and skipped until the call has returned', async () => {
  const folder = temporaryFolder();
  const releases: (() => void)[] = [];
  const prototype = await handlePrototype();
  const { sync } = prototype;
  const hanging = vi.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
    await new Promise<void>((resolve) => releases.push(resolve));
    return sync.call(this);
  });
  const files = opened(`file://${folder}`, { milliseconds: 50 });
  await expect(files.check(signal)).rejects.toThrow('was not put within 0.05 s');
  await expect(files.check(signal)).rejects.toThrow('still has an earlier write in progress');
  hanging.mockRestore();
  for (const release of releases) release();
  await vi.waitFor(() => files.check(signal), { timeout: 10_000 });
  rmdirSync(path.join(folder, '.unfinished'));
});
