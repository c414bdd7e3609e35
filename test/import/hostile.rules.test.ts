import { linkSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { ZipFile } from 'yazl';
import { unzstd } from '../../src/import/codecs.ts';
import { openInput } from '../../src/import/open-input.ts';
import { filesOf } from '../../src/import/open-inputs.ts';
import { isSameFile, requireFree, usualPath } from '../../src/import/refused-rows.ts';
import { restAfter } from '../../src/import/yielding.ts';
import { createRecordScanner, MAX_ROW_BYTES } from '../../src/integrations/csv-scanner.ts';
import { fileOf, readRows, zipOf } from './scene.ts';

const opened = (file: string) => openInput(file, { scratchBytes: 100_000_000 });

const line = (length: number) => `{"external_id":"long","x":"${'y'.repeat(length)}"}\n`;

test('an overlong row is rejected with its number, and the rows around it are read', async () => {
  const content = `{"external_id":"a"}\n${line(MAX_ROW_BYTES)}{"external_id":"b"}\n`;
  const { sent, refused } = await readRows(fileOf('users.ndjson', content), { layout: 'ndjson' });
  expect(sent).toEqual([{ external_id: 'a' }, { external_id: 'b' }]);
  expect(refused).toEqual([{ row: 2, field: null, reason: `the row is longer than ${MAX_ROW_BYTES} bytes` }]);
});

test('a row of 100 MB uses only as much memory as the longest permitted row', async () => {
  const packed = gzipSync(`{"external_id":"a"}\n${line(100_000_000)}{"external_id":"b"}\n`, { level: 1 });
  const file = fileOf('users.ndjson.gz', packed);
  globalThis.gc?.();
  const before = process.memoryUsage().arrayBuffers;
  let most = 0;
  const watch = setInterval(() => {
    most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  }, 5);
  const { sent, refused } = await readRows(file, { layout: 'ndjson' }).finally(() => clearInterval(watch));
  expect(sent).toEqual([{ external_id: 'a' }, { external_id: 'b' }]);
  expect(refused).toHaveLength(1);
  expect(most).toBeLessThan(64 * 1024 * 1024);
});

test('a quote that is never closed is one rejected row with that reason', async () => {
  const { sent, refused } = await readRows(fileOf('users.csv', 'external_id,x\na,1\nb,"2\nc,3\n'));
  expect(sent).toEqual([{ external_id: 'a', x: 1 }]);
  expect(refused).toMatchObject([
    { row: 2, reason: expect.stringContaining('is not closed before the end') },
  ]);
});

test('a row that is not in UTF-8 is rejected alone', async () => {
  const content = Buffer.concat([
    Buffer.from('external_id,x\na,\ufffd\nb,'),
    Buffer.of(0xe4, 0x0a),
    Buffer.from('c,ä\n'),
  ]);
  const { sent, refused } = await readRows(fileOf('users.csv', content));
  expect(sent).toEqual([
    { external_id: 'a', x: '\ufffd' },
    { external_id: 'c', x: 'ä' },
  ]);
  expect(refused).toMatchObject([{ row: 2, reason: 'the row is not in UTF-8; convert the file to UTF-8' }]);
});

test.each([
  ['empty', Buffer.alloc(0), 'is empty'],
  ['in UTF-16', Buffer.from('\ufeffexternal_id\na\n', 'utf16le'), 'is in UTF-16; write it in UTF-8'],
  ['binary', Buffer.from([1, 2, 0, 3]), 'is a binary file'],
  [
    'gzip that is cut',
    gzipSync('external_id\nada\nalan\n').subarray(0, 20),
    'cannot be decompressed: unexpected end of file',
  ],
  [
    'gzip that is broken',
    Buffer.from(gzipSync('external_id\nada\n')).fill(0xff, 12, 16),
    'cannot be decompressed',
  ],
  ['gzip of something binary', gzipSync(Buffer.from([1, 0, 2])), 'is a binary file'],
  [
    'a zip that is cut',
    zipOf([{ name: 'a.csv', content: 'external_id\nada\n' }]).subarray(0, 60),
    'it is truncated',
  ],
  ['a zip without a file', zipOf([]), 'contains no file'],
  [
    'a zip with a Parquet file',
    zipOf([{ name: 'a.parquet', content: 'PAR1\0\0\0PAR1' }]),
    'a.parquet is a compressed Parquet file; decompress it',
  ],
  ['an Avro file in gzip', gzipSync('Obj\x01\0\0'), 'is a compressed Avro file; decompress it'],
  ['a zip that is encrypted', zipOf([{ name: 'a.csv', content: 'x', flags: 1 }]), 'a.csv is encrypted'],
  [
    'a zip of something else than its list says',
    zipOf([{ name: 'a.csv', content: 'external_id\nada\n', announced: Buffer.from('external_id\nbob\n') }]),
    'a.csv is damaged',
  ],
  [
    'a zip of more than its list says',
    zipOf([{ name: 'a.csv', content: 'x'.repeat(100_000), announced: Buffer.from('external_id\n') }]),
    'a.csv is damaged',
  ],
  ['gzip of an empty file', gzipSync(''), 'is empty'],
])(
  'a file that is %s is rejected as a whole, by its name, before a row is read',
  async (_, content, rule) => {
    const file = fileOf('users.csv', content);
    await expect(opened(file)).rejects.toThrow(rule);
    await expect(opened(file)).rejects.toThrow(file);
  },
);

test('a file that unpacks to far more than an export does is rejected', async () => {
  const file = fileOf('users.csv', gzipSync(Buffer.alloc(70_000_000, 0x61)));
  await expect(opened(file)).rejects.toThrow('decompresses to more than 250 times');
});

test('a zip that unpacks to far more than an export does is rejected', async () => {
  const file = fileOf('users.zip', zipOf([{ name: 'a.csv', content: Buffer.alloc(70_000_000, 0x61) }]));
  await expect(opened(file)).rejects.toThrow('decompresses to more than 250 times');
});

test('a name within a zip is only shown, and never used as a path', async () => {
  const name = '../../etc/pass\u001bwd.csv';
  const file = fileOf('users.zip', zipOf([{ name, content: 'external_id,x\nada\n' }]));
  const { refused } = await readRows(file);
  expect(refused).toMatchObject([{ row: 1 }]);
  const input = await opened(file);
  expect(input.innerName).toBe('../../etc/pass?wd.csv');
  await input.close();
});

test('a folder in place of a file, and a missing file, are rejected', async () => {
  const folder = path.join(path.dirname(fileOf('x', 'y')), 'folder');
  mkdirSync(folder);
  await expect(opened(folder)).rejects.toThrow(`${folder} is not a regular file`);
  await expect(opened(`${folder}/none.csv`)).rejects.toThrow('none.csv cannot be read: ENOENT');
});

describe('a folder', () => {
  /** Creates empty files with these names. */
  function folderOf(...names: string[]): string {
    const folder = path.dirname(fileOf('.first', ''));
    for (const name of names) {
      mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
      writeFileSync(path.join(folder, name), '');
    }
    return folder;
  }

  test('is read in the order of paths, without hidden, unfinished and rejected files', async () => {
    const folder = folderOf(
      ...['b.csv', 'a.csv', '10.csv', '9.csv', 'type=1/date=2/x.avro', '.hidden', '.git/config'],
      ...[
        '_SUCCESS',
        '_temporary/0.csv',
        'a.csv.rejects.ndjson',
        'a.csv.dry-run.rejects.ndjson',
        'manifest.json',
      ],
    );
    symlinkSync(path.join(folder, 'a.csv'), path.join(folder, 'link.csv'));
    const result = await filesOf(folder);
    expect(result.map((file) => path.relative(folder, file))).toEqual([
      ...['10.csv', '9.csv', 'a.csv', 'b.csv', 'link.csv', 'type=1/date=2/x.avro'],
    ]);
  });

  test('is rejected if it is empty, is nested too deeply or has a link to a folder', async () => {
    const empty = folderOf('.hidden');
    await expect(filesOf(empty)).rejects.toThrow(`${empty} contains no file`);
    const begun = folderOf('a.csv', 'unfinished.json');
    await expect(filesOf(begun)).rejects.toThrow(`${begun} contains an incomplete export`);
    const round = folderOf('a.csv');
    symlinkSync(round, path.join(round, 'round'));
    await expect(filesOf(round)).rejects.toThrow(`${round}/round is not a regular file`);
    await expect(filesOf(folderOf(`${'d/'.repeat(32)}a.csv`))).rejects.toThrow('more than 32 folders deep');
    symlinkSync(path.join(round, 'none'), path.join(empty, 'broken'));
    await expect(filesOf(empty)).rejects.toThrow('broken cannot be read: ENOENT');
  });

  test('is rejected before a file is read if it has more than 10,000 files', async () => {
    const folder = folderOf();
    const one = path.join(folder, '.first');
    for (let n = 0; n <= 10_000; n++) linkSync(one, path.join(folder, `${n}.csv`));
    await expect(filesOf(folder)).rejects.toThrow(
      'has more than 10000 files; import its subfolders one at a time',
    );
  });
});

test('a long line of quotes is scanned once, not once for each quote', () => {
  const chunk = Buffer.from(`${'"a",'.repeat(50_000)}\nb\n`);
  let calls = 0;
  chunk.indexOf = function (this: Buffer, ...search: Parameters<Buffer['indexOf']>) {
    if (search[0] === 0x0a) calls += 1;
    return Buffer.prototype.indexOf.apply(this, search);
  } as Buffer['indexOf'];
  const ends: number[] = [];
  createRecordScanner(',').scan(chunk, (end) => ends.push(end));
  expect(ends).toEqual([200_001, 200_003]);
  expect(calls).toBeLessThan(5);
});

test('an object of thousands of properties is mapped in time proportional to its size', async () => {
  const members = Array.from({ length: 10_000 }, (_, n) => `"properties.p${n}":${n}`).join(',');
  const file = fileOf('events.ndjson', `{"id":"a","name":"n","time":"2026-01-31T12:00:00Z",${members}}\n`);
  const before = process.cpuUsage();
  const { sent } = await readRows(file, { type: 'events', layout: 'ndjson', map: 'external_id=id' });
  const { user } = process.cpuUsage(before);
  expect(Object.keys((sent[0] as { properties: object }).properties)).toHaveLength(10_000);
  // A copy per member would take ten times as long.
  expect(user / 1000).toBeLessThan(2000);
});

/** Returns a frame of Zstandard with uncompressed bytes, and a header with the given sizes. */
function zstdFrame(content: string, { window, size }: { window?: number; size?: bigint } = {}): Buffer {
  const block = Buffer.alloc(3);
  block.writeUIntLE((content.length << 3) | 1, 0, 3);
  const long = Buffer.alloc(8);
  if (size !== undefined) long.writeBigUInt64LE(size);
  const head =
    window !== undefined
      ? Buffer.of(0x00, window)
      : size !== undefined
        ? Buffer.concat([Buffer.of(0xe0), long])
        : Buffer.of(0x20, content.length);
  return Buffer.concat([Buffer.from('28b52ffd', 'hex'), head, block, Buffer.from(content)]);
}

async function unpackedZstd(bytes: Buffer, step: number): Promise<string> {
  async function* chunks(): AsyncGenerator<Buffer> {
    for (let at = 0; at < bytes.length; at += step) yield bytes.subarray(at, at + step);
  }
  let text = '';
  for await (const chunk of unzstd(chunks())) text += chunk.toString();
  return text;
}

test.each([1, 7, 1000])(
  'each frame of Zstandard is checked before it is unpacked, in pieces of %i bytes',
  async (step) => {
    const skippable = Buffer.concat([Buffer.from('502a4d1804000000', 'hex'), Buffer.from('skip')]);
    const harmless = [zstdFrame('external_id\n'), skippable, zstdFrame('ada\n')];
    expect(await unpackedZstd(Buffer.concat(harmless), step)).toBe('external_id\nada\n');
    for (const hostile of [zstdFrame('x', { window: 31 << 3 }), zstdFrame('x', { size: 2n ** 40n })])
      await expect(unpackedZstd(Buffer.concat([...harmless, hostile]), step)).rejects.toThrow(
        'decompression takes more than',
      );
  },
);

test('a zip64 archive is read like any other archive', async () => {
  const archive = new ZipFile();
  for (const name of ['a', 'b'])
    archive.addBuffer(Buffer.from(`external_id\n${name}\n`), `${name}.csv`, { forceZip64Format: true });
  archive.end({ forceZip64Format: true, comment: '' });
  const file = fileOf('users.zip', await buffer(archive.outputStream));
  expect((await readRows(file)).sent).toEqual([{ external_id: 'a' }, { external_id: 'b' }]);
});

test('a zip with more than 10,000 files is rejected', async () => {
  const files = Array.from({ length: 10_001 }, (_, index) => ({ name: `${index}.csv`, content: '' }));
  await expect(opened(fileOf('users.zip', zipOf(files)))).rejects.toThrow('it has more than 10000 files');
});

test('a zip whose list of names exceeds 16 MiB is rejected', async () => {
  const files = Array.from({ length: 300 }, (_, index) => ({
    name: `${index}`.padEnd(60_000, 'x'),
    content: '',
  }));
  await expect(opened(fileOf('users.zip', zipOf(files)))).rejects.toThrow('larger than 16777216 bytes');
});

test('overlapping entries of a zip are rejected, whatever their size', async () => {
  const archive = zipOf([
    { name: 'a.csv', content: 'external_id\nada\n' },
    { name: 'b.csv', content: 'external_id\nbob\n' },
  ]);
  // The second entry of the list points to the bytes of the first.
  const second = archive.lastIndexOf(Buffer.from('PK\x01\x02', 'latin1'));
  archive.writeUInt32LE(0, second + 42);
  await expect(opened(fileOf('users.zip', archive))).rejects.toThrow('overlaps the next file');
});

test("a rejects file never overwrites the source, by any name, or another import's rejects", async () => {
  const file = fileOf('users.csv', 'external_id\nada\n');
  const folder = path.dirname(file);
  const [linked, symbolic] = [path.join(folder, 'linked'), path.join(folder, 'symbolic')];
  linkSync(file, linked);
  symlinkSync(file, symbolic);
  for (const name of [file, linked, symbolic, `${folder}/../${path.basename(folder)}/users.csv`])
    expect(isSameFile(name, file)).toBe(true);
  expect(isSameFile(path.join(folder, 'none'), file)).toBe(false);

  const rejects = path.join(folder, 'rejects.ndjson');
  await requireFree(rejects, undefined);
  await requireFree('/dev/null', undefined);
  for (const [content, own, isFree] of [
    ['{"file":"users.csv","row":1}\n', undefined, false],
    ['{"file":"users.csv","row":1}\n', 'users.csv', true],
    ['{"file":"users.csv: a.csv","row":1}\n', 'users.csv', true],
    ['{"file":"us', 'users.csv', true],
    ['{"file":"other.csv","row":1}\n', 'users.csv', false],
    ['external_id\n', 'users.csv', false],
    ['', undefined, true],
  ] as const) {
    writeFileSync(rejects, content);
    const judged = requireFree(rejects, own);
    if (isFree) await judged;
    else await expect(judged).rejects.toThrow(`${rejects} already exists`);
  }
});

test('rejected rows of objects of a bucket have a file each, named by the whole key', () => {
  const of = (name: string) => usualPath({ path: '/tmp/copy', name }, false);
  expect(of('s3://rows/a/1.csv')).toBe('rows_a_1.csv.rejects.ndjson');
  expect(of('s3://rows/b/1.csv')).toBe('rows_b_1.csv.rejects.ndjson');
  const [one, other] = ['1', '2'].map((end) => of(`s3://rows/${'ä'.repeat(400)}${end}`));
  expect(one).not.toBe(other);
  expect(Buffer.byteLength(one!)).toBeLessThan(255);
  expect(usualPath({ path: '/a/b.csv', name: '/a/b.csv' }, true)).toBe('/a/b.csv.dry-run.rejects.ndjson');
});

test('an import that has waited for a missing queue rests no longer than after any work', () => {
  expect(restAfter(100)).toBe(300);
  expect(restAfter(60_000)).toBe(2000);
});
