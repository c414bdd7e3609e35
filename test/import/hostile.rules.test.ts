import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { openInput } from '../../src/import/input.ts';
import { MOST_ROW_BYTES } from '../../src/import/records.ts';
import { fileOf, readRows, zipOf } from './scene.ts';

const opened = (file: string) => openInput(file, { scratchBytes: 100_000_000 });

const line = (length: number) => `{"external_id":"long","x":"${'y'.repeat(length)}"}\n`;

test('a row that is longer than a row may be is refused with its number, and those around it are read', async () => {
  const content = `{"external_id":"a"}\n${line(MOST_ROW_BYTES)}{"external_id":"b"}\n`;
  const { sent, refused } = await readRows(fileOf('users.ndjson', content), { layout: 'ndjson' });
  expect(sent).toEqual([{ external_id: 'a' }, { external_id: 'b' }]);
  expect(refused).toEqual([
    { row: 2, field: null, reason: `the row is longer than ${MOST_ROW_BYTES} bytes` },
  ]);
});

test('a row of 100 MB takes no more memory than a row may have', async () => {
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

test('a quote that is never closed is one refused row, which says so', async () => {
  const { sent, refused } = await readRows(fileOf('users.csv', 'external_id,x\na,1\nb,"2\nc,3\n'));
  expect(sent).toEqual([{ external_id: 'a', x: 1 }]);
  expect(refused).toMatchObject([
    { row: 2, reason: expect.stringContaining('is not closed before the end') },
  ]);
});

test('a row that is not in UTF-8 is refused alone', async () => {
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
  expect(refused).toMatchObject([{ row: 2, reason: 'the row is not in UTF-8' }]);
});

test.each([
  ['empty', Buffer.alloc(0), 'is empty'],
  ['in UTF-16', Buffer.from('\ufeffexternal_id\na\n', 'utf16le'), 'is in UTF-16; write it in UTF-8'],
  ['binary', Buffer.from([1, 2, 0, 3]), 'is no text'],
  [
    'gzip that is cut',
    gzipSync('external_id\nada\nalan\n').subarray(0, 20),
    'cannot be unpacked: unexpected end of file',
  ],
  [
    'gzip that is broken',
    Buffer.from(gzipSync('external_id\nada\n')).fill(0xff, 12, 16),
    'cannot be unpacked',
  ],
  ['gzip of something binary', gzipSync(Buffer.from([1, 0, 2])), 'is no text'],
  [
    'a zip that is cut',
    zipOf([{ name: 'a.csv', content: 'external_id\nada\n' }]).subarray(0, 60),
    'it has no end',
  ],
  ['a zip without a file', zipOf([]), 'has no file in it'],
  ['a zip that is encrypted', zipOf([{ name: 'a.csv', content: 'x', flags: 1 }]), 'a.csv is encrypted'],
  [
    'a zip of something else than its list says',
    zipOf([{ name: 'a.csv', content: 'external_id\nada\n', said: Buffer.from('external_id\nbob\n') }]),
    'a.csv is not what was packed',
  ],
  [
    'a zip of more than its list says',
    zipOf([{ name: 'a.csv', content: 'x'.repeat(100_000), said: Buffer.from('external_id\n') }]),
    'a.csv is not what was packed',
  ],
  ['Avro', Buffer.from('Obj\x01\x04', 'latin1'), 'is Avro, which is not read'],
  ['gzip of nothing', gzipSync(''), 'is empty'],
])('a file that is %s is refused as a whole, by its name, before a row is read', async (_, content, rule) => {
  const file = fileOf('users.csv', content);
  await expect(opened(file)).rejects.toThrow(rule);
  await expect(opened(file)).rejects.toThrow(file);
});

test('a file that unpacks to far more than an export does is refused', async () => {
  const file = fileOf('users.csv', gzipSync(Buffer.alloc(70_000_000, 0x61)));
  await expect(opened(file)).rejects.toThrow('unpacked it has more than 250 times');
});

test('a zip that unpacks to far more than an export does is refused', async () => {
  const file = fileOf('users.zip', zipOf([{ name: 'a.csv', content: Buffer.alloc(70_000_000, 0x61) }]));
  await expect(opened(file)).rejects.toThrow('unpacked it has more than 250 times');
});

test('a name within a zip leads nowhere: it is only shown', async () => {
  const name = '../../etc/pass\u001bwd.csv';
  const file = fileOf('users.zip', zipOf([{ name, content: 'external_id,x\nada\n' }]));
  const { refused } = await readRows(file);
  expect(refused).toMatchObject([{ row: 1 }]);
  const input = await opened(file);
  expect(input.innerName).toBe('../../etc/pass?wd.csv');
  await input.close();
});

test('a folder and a file that is not there are refused', async () => {
  const folder = path.join(path.dirname(fileOf('x', 'y')), 'folder');
  mkdirSync(folder);
  await expect(opened(folder)).rejects.toThrow(`${folder} is no file`);
  await expect(opened(`${folder}/none.csv`)).rejects.toThrow('none.csv cannot be read: ENOENT');
});
