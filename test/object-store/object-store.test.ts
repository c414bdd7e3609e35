import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open as openFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { describe, expect, test, vi } from 'vitest';
import { inWords } from '../../src/object-store/folder-store.ts';
import type { ObjectStore, ObjectStoreError } from '../../src/object-store/object-store.ts';
import { accessBySettings, openObjectStore } from '../../src/object-store/open-object-store.ts';
import { createReach } from '../../src/platform/reach.ts';
import { startS3 } from '../integrations/s3.ts';
import { leaveBehind, temporaryFolder } from '../setup/left-behind.ts';

const nobody = { access_key_id: 'a', secret_access_key: 'b' };
const open = (url: string, endpoint?: string, credentials = nobody) =>
  openObjectStore(url, {
    reach: createReach({ refused: 'none' }),
    accessTo: () => ({ region: 'eu-central-1', endpoint, credentials }),
  });

async function* of(...chunks: (string | Buffer)[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield Buffer.from(chunk);
}

async function textOf(stream: Promise<Readable>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const errorOf = async (doing: Promise<unknown>) =>
  doing.then(
    () => ['nothing', ''],
    (error: ObjectStoreError) => [error.reason, error.message],
  );

const keysOf = async (store: ObjectStore, prefix = '') =>
  (await store.list(prefix)).objects.map(({ key }) => key);

async function inBucket(): Promise<ObjectStore> {
  const s3 = await startS3();
  const bucket = await s3.fill(temporaryFolder('penstock-empty-'), '');
  return open(`s3://${bucket}/kept`, s3.endpoint, s3.credentials);
}

describe.each([
  ['a folder', async () => open(path.join(temporaryFolder(), 'objects'))],
  ['the prefix of a bucket', inBucket],
])('%s', (_name, make) => {
  test('returns stored objects whole or in part, reports their size, and forgets removed ones', async () => {
    const store = await make();
    const sha256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824';
    expect(await store.put('a/b.txt', of('he', 'llo'))).toEqual({ bytes: 5, sha256 });
    expect(await textOf(store.get('a/b.txt'))).toBe('hello');
    expect(await textOf(store.get('a/b.txt', { range: { first: 1, last: 3 } }))).toBe('ell');
    expect(await store.stat('a/b.txt')).toMatchObject({ key: 'a/b.txt', bytes: 5 });
    await store.put('a/b.txt', of());
    expect(await textOf(store.get('a/b.txt'))).toBe('');
    await store.remove('a/b.txt');
    await store.remove('a/b.txt');
    expect(await store.stat('a/b.txt')).toBeUndefined();
    expect(await errorOf(store.get('a/b.txt'))).toEqual(['missing', expect.stringContaining('a/b.txt')]);
  });

  test('lists the objects with the requested prefix', async () => {
    const store = await make();
    for (const key of ['a/2', 'a.b', 'a/1/x', 'b', 'a/10']) await store.put(key, of(key));
    expect((await keysOf(store)).sort()).toEqual(['a.b', 'a/1/x', 'a/10', 'a/2', 'b']);
    expect((await keysOf(store, 'a/1')).sort()).toEqual(['a/1/x', 'a/10']);
    expect(await keysOf(store, 'a/1/')).toEqual(['a/1/x']);
    expect(await keysOf(store, 'c/')).toEqual([]);
  });

  test('shows no object whose put failed, and keeps the previous one', async () => {
    const store = await make();
    await store.put('kept', of('old'));
    async function* broken(): AsyncGenerator<Buffer> {
      for (let part = 0; part < 3; part += 1) yield Buffer.alloc(5_000_000);
      throw new Error('row 7 is broken');
    }
    await expect(store.put('kept', broken())).rejects.toThrow('row 7 is broken');
    await expect(store.put('new', broken())).rejects.toThrow('row 7 is broken');
    const gone = AbortSignal.abort(new Error('leaving'));
    await expect(store.put('new', of('x'), { signal: gone })).rejects.toThrow('leaving');
    expect(await textOf(store.get('kept'))).toBe('old');
    expect(await keysOf(store)).toEqual(['kept']);
  });

  test('stores an object of many parts with one of them in memory', async () => {
    const store = await make();
    const chunk = Buffer.alloc(3_000_001, 'abc');
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    async function* chunks(): AsyncGenerator<Buffer> {
      for (let part = 0; part < 20; part += 1) {
        most = Math.max(most, process.memoryUsage().arrayBuffers - before);
        yield chunk;
      }
    }
    const { bytes } = await store.put('large', chunks());
    expect(bytes).toBe(60_000_020);
    expect(await store.stat('large')).toMatchObject({ bytes });
    const last = await textOf(store.get('large', { range: { first: bytes - 4, last: bytes - 1 } }));
    expect(last).toBe(chunk.subarray(-4).toString());
    expect(most).toBeLessThan(bytes);
  });

  test('rejects keys that lead out of it', async () => {
    const store = await make();
    for (const key of [
      '../x',
      'a/../../x',
      '/x',
      'a//b',
      '.unfinished/x',
      'a\\b',
      'a\0',
      '',
      'a/',
      'ä',
      'a b',
    ]) {
      expect(await errorOf(store.put(key, of('x')))).toEqual([
        'config',
        expect.stringContaining('is not a valid key'),
      ]);
      expect(await errorOf(store.get(key))).toEqual([
        'config',
        expect.stringContaining('is not a valid key'),
      ]);
      expect(await errorOf(store.remove(key))).toEqual([
        'config',
        expect.stringContaining('is not a valid key'),
      ]);
    }
    await expect(store.list('../')).rejects.toThrow('is not a valid key');
  });
});

test('a folder lists in the order of keys, as a bucket does, page by page', async () => {
  const store = await open(temporaryFolder());
  for (const key of ['a/2', 'a.b', 'a/1/x', 'b', 'a/10']) await store.put(key, of(key));
  const first = await store.list('', { limit: 2 });
  expect(first.objects.map(({ key, bytes }) => [key, bytes])).toEqual([
    ['a.b', 3],
    ['a/1/x', 5],
  ]);
  const second = await store.list('', { limit: 3, after: first.next! });
  expect([second.objects.map(({ key }) => key), second.next]).toEqual([['a/10', 'a/2', 'b'], null]);
});

test('a folder follows no links, is private, and removes files of dead processes', async () => {
  const root = temporaryFolder();
  const [folder, secret] = [path.join(root, 'objects'), path.join(root, 'secret')];
  writeFileSync(secret, 'secret');
  mkdirSync(path.join(folder, '.unfinished'), { recursive: true });
  const left = path.join(folder, '.unfinished', 'left');
  writeFileSync(left, 'half');
  utimesSync(left, 1, 1);
  const store = await open(`file://${folder}`);
  symlinkSync(secret, path.join(folder, 'link'));
  expect(await errorOf(store.get('link'))).toEqual(['config', expect.stringContaining('link')]);
  expect(await keysOf(store)).toEqual([]);
  await store.put('a', of('x'));
  expect(readdirSync(path.join(folder, '.unfinished'))).toEqual([]);
  writeFileSync(left, 'half');
  await store.sweep!();
  expect(readFileSync(left, 'utf8')).toBe('half');
  utimesSync(left, 1, 1);
  await store.sweep!();
  expect(readdirSync(path.join(folder, '.unfinished'))).toEqual([]);
  expect(readFileSync(path.join(folder, 'a'), 'utf8')).toBe('x');
});

test('an unwritable folder and a full disk are reported by name and cause', async () => {
  const root = temporaryFolder();
  writeFileSync(path.join(root, 'file'), '');
  const store = await open(path.join(root, 'file'));
  const [reason, message] = await errorOf(store.put('a', of('x')));
  expect([reason, message]).toEqual(['config', expect.stringContaining(path.join(root, 'file'))]);
  if (process.getuid?.() !== 0) {
    chmodSync(root, 0o500);
    const closed = await open(path.join(root, 'new'));
    expect(await errorOf(closed.put('a', of('x')))).toEqual(['config', expect.stringContaining('no right')]);
    chmodSync(root, 0o700);
  }
  const full = inWords(Promise.reject(Object.assign(new Error(), { code: 'ENOSPC' })), {
    ...{ name: '/data/a', doing: 'written' },
  });
  expect(await errorOf(full)).toEqual(['full', '/data/a cannot be written: its disk is full (ENOSPC)']);
});

/** Returns the prototype of file handles, to observe the calls of all handles of this process. */
async function handlePrototype(): Promise<FileHandle> {
  const handle = await openFile('/dev/null');
  await handle.close();
  return Object.getPrototypeOf(handle) as FileHandle;
}

test('a file is acknowledged once its folders are on disk, up to the folder of the archive', async () => {
  const parent = temporaryFolder();
  const store = await open(path.join(parent, 'new', 'archive'));
  const prototype = await handlePrototype();
  const { sync } = prototype;
  const synced: string[] = [];
  const spy = vi.spyOn(prototype, 'sync').mockImplementation(function (this: FileHandle) {
    synced.push(path.relative(parent, readlinkSync(`/proc/self/fd/${this.fd}`)));
    return sync.call(this);
  });
  await store.put('a/b/c', of('x'));
  expect(synced).toEqual(
    expect.arrayContaining(['', 'new', 'new/archive', 'new/archive/a', 'new/archive/a/b']),
  );
  synced.length = 0;
  await store.remove('a/b/c');
  expect(synced).toEqual(['new/archive/a/b']);
  await store.remove('gone/c');
  spy.mockRestore();
});

/** Starts a service with these answers. @returns its address */
async function service(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('a bucket is listed page by page, each after the last key of the previous one', async () => {
  const requestedPaths: (string | null)[] = [];
  const endpoint = await service((request, response) => {
    const { searchParams } = new URL(request.url!, 'http://localhost');
    const after = searchParams.get('start-after');
    requestedPaths.push(searchParams.get('max-keys'), searchParams.get('prefix'), after);
    response.end(
      `<ListBucketResult><IsTruncated>${!after}</IsTruncated><Contents><Key>kept/a/${after ? 2 : 1}</Key><Size>7</Size></Contents></ListBucketResult>`,
    );
  });
  const store = await open('s3://bucket/kept/', endpoint);
  const first = await store.list('a/', { limit: 1 });
  expect([first.objects.map(({ key }) => key), first.next]).toEqual([['a/1'], 'a/1']);
  const second = await store.list('a/', { after: first.next! });
  expect([second.objects.map(({ key }) => key), second.next]).toEqual([['a/2'], null]);
  expect(requestedPaths).toEqual(['1', 'kept/a/', null, '200', 'kept/a/', 'kept/a/1']);
});

test.each([
  [403, 'InvalidAccessKeyId', 'config'],
  [404, 'NoSuchBucket', 'config'],
  [507, 'XMinioStorageFull', 'full'],
])('a bucket that answers %i %s is named with the cause that it reports', async (status, code, reason) => {
  const endpoint = await service((request, response) => {
    request.resume();
    response.statusCode = status;
    response.end(`<Error><Code>${code}</Code><Message>as it says</Message></Error>`);
  });
  const store = await open('s3://bucket/kept', endpoint);
  const error = await errorOf(store.put('a', of('x')));
  expect(error).toEqual([reason, `s3://bucket/kept/a at ${endpoint}: ${code}: as it says`]);
  store.close();
});

test('an unreachable bucket and a bucket at a refused address are reported by name', async () => {
  const store = await open('s3://bucket', 'http://127.0.0.1:1');
  expect(await errorOf(store.put('a', of('x')))).toEqual([
    'config',
    expect.stringMatching(/^s3:\/\/bucket\/a at http:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/),
  ]);
  const refusing = openObjectStore('s3://bucket', {
    reach: createReach({ refused: '127.0.0.0/8' }),
    accessTo: () => ({ region: 'x', endpoint: 'http://127.0.0.1:1', credentials: nobody }),
  });
  expect(await errorOf(refusing)).toEqual(['config', expect.stringContaining('s3://bucket/')]);
});

test('an object that ends before its length is an error, not its end', async () => {
  const endpoint = await service((_request, response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('half');
    setImmediate(() => response.destroy());
  });
  const store = await open('s3://bucket/kept', endpoint);
  expect(await errorOf(textOf(store.get('a')))).toEqual([
    'failed',
    expect.stringContaining('s3://bucket/kept/a'),
  ]);
});

test('an invalid address and incomplete settings are reported', async () => {
  for (const url of ['gs://bucket/x', 'http://host/x', 'file://host/x', ''])
    expect(await errorOf(open(url))).toEqual(['config', expect.stringContaining('s3://bucket/prefix')]);
  const settings = { S3_REGION: 'x', S3_ENDPOINT: '', S3_ACCESS_KEY_ID: 'x', S3_SECRET_ACCESS_KEY: '' };
  expect(() => accessBySettings(settings)).toThrow('S3_SECRET_ACCESS_KEY is not set');
});
